//! The folder of blob files: names, temporary files, listing.
//!
//! ```text
//! <dir>/blobs/tmp/<hex>-<number>      being written
//! <dir>/blobs/<2 hex>/<hex>           finished; the two are the first of the name
//! ```
//! Names are made from ids alone, and only names that an id makes are ever opened or removed. Calls here block: they belong on
//! a blocking thread.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_model::content::BlobId;
use larder_store::leases::Leases;
use larder_store::{BlobOwner, Error, Kind, ListedBlob, Result};

use super::Sizes;
use super::disk::{Disk, failed};
use super::{folders, reader, verify};

/// The folder, shared by all writers and readers.
pub(super) struct Files {
    root: PathBuf,
    disk: Box<dyn Disk>,
    /// When a body becomes a file, and how it is cut.
    pub(super) sizes: Sizes,
    poisoned: AtomicBool,
    next: AtomicU64,
}

/// A file under way. Dropped before it is published, it is removed.
pub(super) struct Temp {
    files: Arc<Files>,
    file: File,
    path: PathBuf,
    published: bool,
}

impl Files {
    /// Opens or makes the folder, and removes what dead processes left in `tmp`: the caller must hold the lock of the data
    /// directory. A folder that is there is not written to: a full disk is no reason not to start.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn open(dir: &Path, sizes: Sizes, disk: Box<dyn Disk>) -> Result<Self> {
        let root = folders::root(dir);
        let files = Self { root, disk, sizes, poisoned: AtomicBool::new(false), next: AtomicU64::new(0) };
        // A data directory has its folders from the start; without one they are made here.
        let made = match folders::check(dir) {
            Ok(()) => Ok(()),
            Err(_) => folders::create(dir),
        };
        made.map_err(|error| failed(format_args!("blob folder {}", files.root.display()), error))?;
        if let Err(error) = files.clean() {
            let root = files.root.display();
            tracing::warn!(%root, %error, "unfinished blob files not removed; the next start tries again");
        }
        Ok(files)
    }

    /// Refuses writes after a sync failed: what the disk then holds of a folder is unknown until it is read anew.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_poison(&self) -> Result<()> {
        if self.is_poisoned() {
            return Err(Error::new(Kind::Poisoned, "a sync of a blob failed earlier: restart the server"));
        }
        Ok(())
    }

    /// Whether a sync failed.
    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Begins a file.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn begin(self: &Arc<Self>, id: BlobId) -> Result<Temp> {
        // The number keeps apart two writers of one blob, one of which may be on its way out.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = folders::unfinished(&self.root).join(format!("{}-{number}", id.hex()));
        let file = File::create_new(&path).map_err(|error| failed("begin a blob", error))?;
        Ok(Temp { files: self.clone(), file, path, published: false })
    }

    /// Opens the finished file of a blob.
    ///
    /// # Errors
    /// `NoSuchBlob`, `Io`.
    pub(super) fn open_blob(&self, id: BlobId) -> Result<File> {
        File::open(self.path(id)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::new(Kind::NoSuchBlob, format!("blob {}", id.hex())),
            _ => failed("open a blob", error),
        })
    }

    /// Removes the file of a blob; answers whether there was one.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn remove(&self, id: BlobId) -> Result<bool> {
        match fs::remove_file(self.path(id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("remove a blob", error)),
        }
    }

    /// Files in the order of their ids, without those that cannot be read; these are logged.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn list(&self, after: Option<BlobId>, limit: usize, leases: &Leases) -> Result<Vec<ListedBlob>> {
        let mut found = Vec::new();
        for shard in after.map_or(0, |after| after.0[0])..=u8::MAX {
            let ids = self.ids(shard, after).map_err(|error| failed("list blobs", error))?;
            for id in ids {
                if found.len() >= limit {
                    return Ok(found);
                }
                let owner = self.owner(id);
                found.extend(owner.map(|owner| ListedBlob { id, owner, leased: leases.holds(&id) }));
            }
        }
        Ok(found)
    }

    /// The owner of a file; `None` if it went away or is damaged.
    fn owner(&self, id: BlobId) -> Option<BlobOwner> {
        match self.open_blob(id).and_then(|file| reader::read_head(&file, id)) {
            Ok((head, _, _)) => Some(head.owner),
            Err(error) if error.kind == Kind::NoSuchBlob => None,
            Err(error) => {
                tracing::error!(blob = id.hex(), %error, "blob file skipped: it is damaged");
                None
            }
        }
    }

    /// Ids of one shard behind `after`, sorted.
    fn ids(&self, shard: u8, after: Option<BlobId>) -> io::Result<Vec<BlobId>> {
        let mut ids = verify::ids(&self.root, shard)?;
        ids.retain(|id| after.is_none_or(|after| *id > after));
        Ok(ids)
    }

    /// Removes files that nobody writes any more.
    fn clean(&self) -> io::Result<()> {
        for entry in fs::read_dir(folders::unfinished(&self.root))? {
            let entry = entry?;
            let name = entry.file_name();
            let ours = name.to_str().and_then(|name| name.split_once('-')).and_then(|(id, _)| BlobId::from_hex(id));
            if ours.is_some() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn shard(&self, shard: u8) -> PathBuf {
        folders::shard(&self.root, shard)
    }

    fn path(&self, id: BlobId) -> PathBuf {
        self.shard(id.0[0]).join(id.hex())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync(&File::open(path)?)
    }

    /// Notes a failed sync. A full disk is no reason: nothing of the file was promised, and it is removed.
    fn note_sync(&self, context: &str, answer: io::Result<()>) -> Result<()> {
        answer.map_err(|error| {
            let error = failed(context, error);
            if error.kind != Kind::Full {
                self.poisoned.store(true, Ordering::Release);
                tracing::error!(%error, "no blobs are written until the server is restarted");
            }
            error
        })
    }
}

impl Temp {
    /// Appends bytes.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.files.disk.write(&mut self.file, bytes);
        written.map_err(|error| failed("write a blob", error))
    }

    /// Gives the file its name. File and name are on disk afterwards, whatever the write was asked for: its row may reach the
    /// disk at any time, and must not replace an older row by bytes that a power cut takes. If this fails, neither is there.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn publish(mut self, id: BlobId) -> Result<()> {
        let files = self.files.clone();
        files.note_sync("sync a blob", files.disk.sync(&self.file))?;
        let path = files.path(id);
        fs::rename(&self.path, &path).map_err(|error| failed("name a blob", error))?;
        self.path = path;
        files.note_sync("sync the folder of a blob", files.sync_dir(&files.shard(id.0[0])))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "unfinished blob file not removed");
            }
            _ => {}
        }
    }
}
