//! The folder of blob files: names, temporary files, listing.
//!
//! ```text
//! <dir>/blobs/tmp/<hex>-<number>      being written
//! <dir>/blobs/<2 hex>/<hex>           finished; the two are the first of the name
//! ```
//! A name derives from an id alone, and no other name is opened or removed. Calls here block, so callers use a blocking thread.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_rows::content::BlobId;
use larder_store::leases::BlobLeases;
use larder_store::{BlobOwner, Error, Kind, ListedBlob, Result};

use super::disk::{BlobDisk, failed};
use super::{BlobSizes, folders, reader};
use crate::io_errors::if_there;

/// The folder, shared by all writers and readers.
pub(super) struct BlobFolder {
    root: PathBuf,
    disk: Box<dyn BlobDisk>,
    /// The length at which a body becomes a file, and the size of its blocks.
    pub(super) sizes: BlobSizes,
    poisoned: AtomicBool,
    next: AtomicU64,
}

/// A file being written. A drop before [`Self::publish`] removes it.
pub(super) struct UnfinishedFile {
    files: Arc<BlobFolder>,
    file: File,
    path: PathBuf,
    published: bool,
}

impl BlobFolder {
    /// Opens or creates the folder, and removes the files of dead processes in `tmp`: the caller must hold the lock of the data
    /// directory. It does not write to an existing folder, so a store on a full disk starts.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn open(dir: &Path, sizes: BlobSizes, disk: Box<dyn BlobDisk>) -> Result<Self> {
        let root = folders::root(dir);
        let files = Self { root, disk, sizes, poisoned: AtomicBool::new(false), next: AtomicU64::new(0) };
        // A data directory has its folders from its creation; tests open a folder without one.
        let outcome = match folders::check(dir) {
            Ok(()) => Ok(()),
            Err(_) => folders::create(dir),
        };
        outcome.map_err(|error| failed(format_args!("blob folder {}", files.root.display()), error))?;
        if let Err(error) = files.remove_unfinished() {
            let root = files.root.display();
            tracing::warn!(%root, %error, "removal of unfinished blob files failed; the next start retries it");
        }
        Ok(files)
    }

    /// Refuses writes after a failed sync: the content of the disk is unknown until a restart reads it.
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

    /// Creates an unfinished file.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn create_unfinished(self: &Arc<Self>, id: BlobId) -> Result<UnfinishedFile> {
        // Two writers of one blob may overlap while an abandoned one cleans up: the number keeps their files apart.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = folders::unfinished(&self.root).join(format!("{}-{number}", id.hex()));
        let file = File::create_new(&path).map_err(|error| failed("begin a blob", error))?;
        Ok(UnfinishedFile { files: self.clone(), file, path, published: false })
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

    /// Removes the file of a blob; returns whether there was one.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn remove(&self, id: BlobId) -> Result<bool> {
        // Not synced: after a power cut the file may be back, and the sweeper finds that no row names it.
        let removed = if_there(fs::remove_file(self.path(id))).map_err(|error| failed("remove a blob", error))?;
        Ok(removed.is_some())
    }

    /// Files sorted by id. Unreadable files are logged and left out.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn list(&self, after: Option<BlobId>, limit: usize, leases: &BlobLeases) -> Result<Vec<ListedBlob>> {
        let mut blobs = Vec::new();
        for shard in after.map_or(0, |after| after.0[0])..=u8::MAX {
            let ids = self.ids(shard, after).map_err(|error| failed("list blobs", error))?;
            for id in ids {
                if blobs.len() >= limit {
                    return Ok(blobs);
                }
                let owner = self.owner(id);
                // The lease is read after the file was seen: its writer took it before the publication.
                blobs.extend(owner.map(|owner| ListedBlob { id, owner, leased: leases.is_leased(&id) }));
            }
        }
        Ok(blobs)
    }

    /// The owner of a file; `None` if the file was removed or is damaged.
    fn owner(&self, id: BlobId) -> Option<BlobOwner> {
        match self.open_blob(id).and_then(|file| reader::read_head(&file, id)) {
            Ok((head, _, _)) => Some(head.owner),
            Err(error) if error.kind == Kind::NoSuchBlob => None,
            Err(error) => {
                tracing::error!(blob = id.hex(), %error, "listing of a blob file failed: the file is damaged; it is left out");
                None
            }
        }
    }

    /// Ids of one shard after `after`, sorted.
    fn ids(&self, shard: u8, after: Option<BlobId>) -> io::Result<Vec<BlobId>> {
        let mut ids = reader::ids(&self.root, shard)?;
        ids.retain(|id| after.is_none_or(|after| *id > after));
        Ok(ids)
    }

    /// Removes the unfinished files of dead processes.
    fn remove_unfinished(&self) -> io::Result<()> {
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

    /// Poisons the folder after a failed sync. A full disk does not poison: no writer has a reply yet, and the file is removed.
    fn poison_on_failure(&self, context: &str, answer: io::Result<()>) -> Result<()> {
        answer.map_err(|error| {
            let error = failed(context, error);
            if error.kind != Kind::Full {
                self.poisoned.store(true, Ordering::Release);
                tracing::error!(%error, "sync of a blob failed; blobs take no writes until the server is restarted");
            }
            error
        })
    }
}

impl UnfinishedFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.files.disk.write(&mut self.file, bytes);
        written.map_err(|error| failed("write a blob", error))
    }

    /// Gives the file its name; file and name are then on disk. On failure neither remains.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn publish(mut self, id: BlobId) -> Result<()> {
        let files = self.files.clone();
        // The bytes before the name, and both before the row, whatever the durability of the write: the row may reach the disk
        // at any time, and must not replace an older row by bytes that a power cut takes [invariant 95].
        files.poison_on_failure("sync a blob", files.disk.sync(&self.file))?;
        let path = files.path(id);
        fs::rename(&self.path, &path).map_err(|error| failed("name a blob", error))?;
        // From here on a drop removes the published name.
        self.path = path;
        files.poison_on_failure("sync the folder of a blob", files.sync_dir(&files.shard(id.0[0])))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "removal of an unfinished blob file failed; the next start retries it");
            }
            _ => {}
        }
    }
}
