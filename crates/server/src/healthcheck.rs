//! `larder healthcheck`: asks a running server whether it is ready, for containers without an HTTP client.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_kv_admin::frame::{AdminReply, AdminRequest, LENGTH_BYTES};

use crate::settings::table::MINIO_PORT;
use crate::settings::{Listener, ServerSettings};

/// The command that the admin socket is asked, and its answer when the server is ready.
const SERVICES: &str = "services";
const NO_SERVICES: &str = "[]";
/// The path of the probe, on both HTTP interfaces.
const PATH: &str = "/health/ready";
/// How long connecting, writing, and each read of the answer may take.
const STEP_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of the answer that are read.
const ANSWER_BYTES_MAX: u64 = 4096;

/// The place that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthTarget {
    /// The probe over HTTP.
    Url(HealthUrl),
    /// The admin socket.
    Socket(PathBuf),
}

impl HealthTarget {
    /// The probe of a server with these settings: of the Riak interface, of S3 where that one is off, or its admin socket where
    /// neither is offered without TLS. A certificate may be for names that this machine cannot check.
    ///
    /// # Errors
    /// The server takes a free port.
    pub fn from_settings(settings: &ServerSettings) -> Result<Self, String> {
        match (&settings.http, &settings.s3) {
            (Listener::Off, Listener::Off) => Ok(Self::Socket(settings.admin_socket.clone())),
            _ => HealthUrl::from_settings(settings).map(Self::Url),
        }
    }
}

/// The address of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthUrl {
    /// Hosts with their ports: the first that takes a connection is asked.
    authorities: Vec<String>,
    path: String,
}

impl HealthUrl {
    /// Parses `http://HOST[:PORT][/PATH]`; without a path, that of the probe.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(url: &str) -> Result<Self, String> {
        let expected = || format!("the URL is {url:?}: expected http://HOST:PORT or http://HOST:PORT/PATH");
        let rest = url.strip_prefix("http://").ok_or_else(expected)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || !is_plain(authority) || !is_plain(path) {
            return Err(expected());
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let path = if matches!(path, "" | "/") { PATH } else { path };
        Ok(Self { authorities: vec![authority], path: path.to_owned() })
    }

    /// The probe of a server with these settings: of the Riak interface, of S3, or of S3 at the port of `larder server`. The words
    /// of that command are not in the environment of a container, so all of them are tried.
    ///
    /// # Errors
    /// The server takes a free port.
    fn from_settings(settings: &ServerSettings) -> Result<Self, String> {
        let listeners = [&settings.http, &settings.s3];
        let mut authorities: Vec<String> = listeners.into_iter().filter_map(reachable).collect();
        if authorities.is_empty() {
            return Err("the server takes a free port: name it with --url".to_owned());
        }
        authorities.push(format!("127.0.0.1:{MINIO_PORT}"));
        Ok(Self { authorities, path: PATH.to_owned() })
    }
}

/// The address at which this machine reaches a listener; `None` for one that is off or takes a free port.
fn reachable(listener: &Listener) -> Option<String> {
    let Listener::At(at) = listener else { return None };
    let (host, port) = at.rsplit_once(':').filter(|(_, port)| *port != "0")?;
    // A server on all addresses is on loopback too.
    let host = match host {
        "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        host => host,
    };
    Some(format!("{host}:{port}"))
}

/// Asks the server. The text is its answer.
///
/// # Errors
/// A line that says why the server is not ready.
pub fn run(target: &HealthTarget) -> Result<String, String> {
    match target {
        HealthTarget::Url(url) => ask_url(url),
        HealthTarget::Socket(path) => ask_socket(path),
    }
}

fn ask_url(url: &HealthUrl) -> Result<String, String> {
    let failed = |error: io::Error| format!("no answer from {}: {error}", url.authorities.join(" or "));
    let (authority, stream) = connect(&url.authorities).map_err(failed)?;
    let answer = ask(stream, authority, &url.path).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let line: String = body.chars().take_while(|c| !c.is_control()).collect();
    match status {
        "200" => Ok(line),
        _ => Err(format!("{authority} answers {status} {line}")),
    }
}

fn ask(mut stream: TcpStream, authority: &str, path: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(STEP_TIME_MAX))?;
    stream.set_write_timeout(Some(STEP_TIME_MAX))?;
    write!(stream, "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, authority)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn ask_socket(path: &Path) -> Result<String, String> {
    let answer = services(path).map_err(|error| format!("no answer on {}: {error}", path.display()))?;
    match answer.as_str() {
        NO_SERVICES => Err(format!("the server on {} is not ready", path.display())),
        _ => Ok("ready".to_owned()),
    }
}

/// The services that run, as the admin socket names them.
fn services(path: &Path) -> io::Result<String> {
    let request = AdminRequest { args: vec![SERVICES.to_owned()], ..AdminRequest::default() };
    let request = request.encode().map_err(io::Error::other)?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(STEP_TIME_MAX))?;
    stream.set_write_timeout(Some(STEP_TIME_MAX))?;
    stream.write_all(&request)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    match AdminReply::decode(answer.get(LENGTH_BYTES..).unwrap_or_default()) {
        Ok(AdminReply::Answer(answer)) if answer.exit == 0 => Ok(answer.stdout.trim().to_owned()),
        other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
    }
}

/// Connects to the first host that takes a connection, at the first of its addresses. The error is the first one.
fn connect(authorities: &[String]) -> io::Result<(&str, TcpStream)> {
    let mut first = None;
    for authority in authorities {
        let addresses: io::Result<Vec<SocketAddr>> = authority.to_socket_addrs().map(Iterator::collect);
        match addresses.and_then(|addresses| connect_to_first(&addresses)) {
            Ok(stream) => return Ok((authority, stream)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn connect_to_first(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, STEP_TIME_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_port_and_a_path() {
        let parts = |url| HealthUrl::parse(url).map(|url| (url.authorities.concat(), url.path));
        let expected = |authority: &str, path: &str| Ok((authority.to_owned(), path.to_owned()));
        assert_eq!(parts("http://h:1"), expected("h:1", PATH));
        assert_eq!(parts("http://h/"), expected("h:80", PATH));
        assert_eq!(parts("http://[::1]/health/live"), expected("[::1]:80", "/health/live"));
        for bad in ["https://h", "h:1", "http://", "http://h /", "http://h/a b", "http://h\r\nX: y"] {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_probe_tries_each_listener_with_a_fixed_port_and_that_of_minio() {
        let probe = |http: &str, s3: &str| {
            let variables = [("LARDER_HTTP", http), ("LARDER_S3", s3)].map(|(name, text)| (name.into(), text.into()));
            let words = ["larder", "healthcheck"].map(std::ffi::OsString::from);
            match crate::settings::cli::read(words, &variables, |_| unreachable!("no file is named")) {
                Ok(crate::settings::cli::Invocation::CheckHealth(target)) => Ok(match target {
                    HealthTarget::Url(url) => url.authorities.join(" "),
                    HealthTarget::Socket(path) => path.display().to_string(),
                }),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.message),
            }
        };
        assert_eq!(probe("h:1", "127.0.0.1:2").unwrap(), "h:1 127.0.0.1:2 127.0.0.1:9000");
        assert_eq!(probe("h:1", "127.0.0.1:0").unwrap(), "h:1 127.0.0.1:9000");
        assert!(probe("h:0", "off").unwrap_err().contains("--url"));
        assert_eq!(probe("off", "off").unwrap(), "./data/admin.sock");
    }
}
