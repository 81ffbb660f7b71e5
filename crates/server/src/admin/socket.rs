//! The admin socket: a Unix socket that only the server's own user may open.

use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_net::Acceptor;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::command::AdminContext;
use super::connection;

/// Longest path a Unix socket can have, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 107;
/// Most commands at a time; further ones wait.
pub(crate) const COMMANDS_MAX: usize = 32;
const BACKLOG: u32 = 64;

/// The reason why there is no admin socket, as one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// The path does not fit into a socket address.
    #[error(
        "the path of the admin socket has {bytes} bytes, more than {PATH_BYTES_MAX}: {}; set a shorter one with --admin-socket",
        path.display()
    )]
    LongPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Another server answers there.
    #[error("another server answers on the admin socket {}", .0.display())]
    InUse(PathBuf),
    /// The path is no socket.
    #[error("{} is not a socket: the admin socket cannot be made there", .0.display())]
    NotASocket(PathBuf),
    /// An error of the system.
    #[error("cannot make the admin socket {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Refuses a path that is too long for a socket.
///
/// # Errors
/// [`SocketError::LongPath`].
pub(crate) fn check_path(path: &Path) -> Result<(), SocketError> {
    match path.as_os_str().as_bytes().len() {
        bytes if bytes > PATH_BYTES_MAX => Err(SocketError::LongPath { path: path.to_owned(), bytes }),
        _ => Ok(()),
    }
}

/// A bound socket; dropping it removes its file.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl AdminSocket {
    /// Creates the socket. It replaces the socket of a server that ended without removing it.
    ///
    /// # Errors
    /// [`SocketError`].
    pub(crate) async fn bind(path: &Path) -> Result<Self, SocketError> {
        check_path(path)?;
        let io = |source| SocketError::Io { path: path.to_owned(), source };
        // The file of a killed server would refuse the bind below.
        remove_stale(path).await?;
        let socket = UnixSocket::new_stream().map_err(io)?;
        socket.bind(path).map_err(io)?;
        // The mode is set before `listen`: no other user can connect in between.
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(io)?;
        let inode = std::fs::symlink_metadata(path).map_err(io)?.ino();
        let listener = socket.listen(BACKLOG).map_err(io)?;
        Ok(Self { listener, path: path.to_owned(), inode })
    }

    /// Answers commands until `shutdown` turns true, then finishes the running ones.
    pub(crate) async fn serve(self, context: AdminContext, mut shutdown: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(COMMANDS_MAX));
        let mut acceptor = Acceptor::new("admin socket");
        let mut commands = JoinSet::new();
        loop {
            let (stream, permit) = tokio::select! {
                _ = shutdown.wait_for(|down| *down) => break,
                connection = acceptor.next(|| self.accept(&permits)) => connection,
            };
            // Finished commands are dropped here: the set would grow with each command otherwise.
            while commands.try_join_next().is_some() {}
            let (context, shutdown) = (context.clone(), shutdown.clone());
            commands.spawn(async move {
                connection::serve(&context, stream, shutdown).await;
                drop(permit);
            });
        }
        // The socket's file goes before the last commands end: a server started next binds its own.
        drop(self);
        while commands.join_next().await.is_some() {}
    }

    async fn accept(&self, permits: &Arc<Semaphore>) -> io::Result<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
        // The permit precedes the accept: further commands wait in the backlog and hold no descriptor.
        let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, permit))
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // Only the own inode: a server started since may have put its socket under the same name.
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "admin socket not removed: its file stays");
        }
    }
}

/// Removes a socket that no server answers on.
async fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let io = |source| SocketError::Io { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
        // Only a refused connection proves that no server listens: other errors leave the file alone.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(io),
        Err(error) => Err(io(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn only_the_owner_may_open_the_socket_and_a_drop_removes_its_file() {
        within(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("admin.sock");
            let socket = AdminSocket::bind(&path).await.unwrap();
            assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
            drop(socket);
            assert!(!path.exists());
        });
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        within(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("admin.sock");
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            assert!(path.exists());
            let socket = AdminSocket::bind(&path).await.unwrap();
            assert!(matches!(AdminSocket::bind(&path).await, Err(SocketError::InUse(_))));
            drop(socket);
        });
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        within(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, "mine").unwrap();
            assert!(matches!(AdminSocket::bind(&path).await, Err(SocketError::NotASocket(_))));
            assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        });
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_named() {
        let path = Path::new("/").join("x".repeat(PATH_BYTES_MAX));
        let error = check_path(&path).unwrap_err().to_string();
        assert!(error.contains("108 bytes") && error.contains("--admin-socket"), "{error}");
        assert!(check_path(Path::new(&"x".repeat(PATH_BYTES_MAX))).is_ok());
    }
}
