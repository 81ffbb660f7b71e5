//! One connection to the admin socket: it carries one command and its answer.

use std::io;
use std::pin::pin;
use std::time::Duration;

use larder_console::CommandProgress;
use larder_core::{AuditEvent, AuditOutcome};
use larder_kv_admin::frame::{
    AdminAnswer, AdminReply, AdminRequest, BadFrame, LENGTH_BYTES, REQUEST_BYTES_MAX, body_length,
};
use larder_kv_admin::progress_bar::Progress;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::command::{AdminContext, CommandCall, ProgressReporter};
use super::table::{CommandLookup, find};

/// The argument that asks for JSON, at any position.
const JSON: &str = "--json";
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest silence of a command; a command that reports progress may take any time.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(120);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the rest of a malformed request is read.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// Reads the command of a connection, runs it and answers. Each step has a deadline.
pub(super) async fn serve(context: &AdminContext, mut stream: UnixStream, shutdown: watch::Receiver<bool>) {
    // Bound: a client that connects and sends nothing holds one of few places.
    let request = timeout(REQUEST_TIME_MAX, read_request(&mut stream)).await;
    let is_whole = matches!(request, Ok(Ok(_)));
    let answer = match request {
        Ok(Ok(request)) => match execute(context, &request, &mut stream, shutdown).await {
            Some(answer) => {
                audit(context, &request, &stream, &answer);
                answer
            }
            None => {
                let given_up = AdminAnswer::failed("command given up: kv-admin closed its connection");
                audit(context, &request, &stream, &given_up);
                let command = request.args.first();
                return tracing::info!(command, "command given up: kv-admin closed its connection");
            }
        },
        Ok(Err(bad)) => AdminAnswer::failed(refusal(&bad)),
        Err(_) => AdminAnswer::failed("no request came in time"),
    };
    let answer = AdminReply::Answer(answer).encode();
    // Bound: a client that does not read its answer holds one of few places, too.
    let written = timeout(ANSWER_TIME_MAX, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    });
    match written.await {
        Ok(Ok(())) if is_whole => {}
        // Without a whole request there may be unread bytes: closing over them would reset the connection.
        Ok(Ok(())) => drop(timeout(REST_TIME_MAX, skip_rest(&mut stream)).await),
        Ok(Err(error)) => tracing::debug!(%error, "answer not written: kv-admin closed its connection"),
        Err(_) => tracing::debug!("answer not written: kv-admin did not read it in time"),
    }
}

/// Reports a command that changes something.
fn audit(context: &AdminContext, request: &AdminRequest, stream: &UnixStream, answer: &AdminAnswer) {
    let words = request_words(request);
    let Some(log) = context.objects.gateway.context().audit() else { return };
    let CommandLookup::Command(command, args) = find(&words) else { return };
    if command.audited {
        let user = stream.peer_cred().map(|peer| format!("uid {}", peer.uid())).ok();
        log.record(&AuditEvent {
            face: "kv-admin",
            who: user.as_deref(),
            from: None,
            action: &command.words().join(" "),
            target: &command.target(args),
            outcome: if answer.exit == 0 { AuditOutcome::Done } else { AuditOutcome::Failed },
            status: None,
            request: None,
        });
    }
}

/// Runs a command and sends its progress, if the client shows it; `None` if that client hung up.
async fn execute(
    context: &AdminContext,
    request: &AdminRequest,
    stream: &mut UnixStream,
    mut shutdown: watch::Receiver<bool>,
) -> Option<AdminAnswer> {
    let reports_progress = reports_progress(request);
    let shown = request.progress && reports_progress;
    let listed = reports_progress.then(|| context.commands.begin(request_words(request).join(" ")));
    let (reporter, mut reports) = ProgressReporter::new();
    let mut doing = pin!(run(context, request, &reporter));
    let (mut from, mut to) = stream.split();
    let mut wait_for_hangup = pin!(wait_for_hangup(&mut from));
    let mut moved = Instant::now();
    loop {
        tokio::select! {
            // `biased`: an answer that is ready counts before a shutdown or a hang-up.
            biased;
            answer = &mut doing => return Some(answer),
            () = async { drop(shutdown.wait_for(|down| *down).await) }, if shown => {
                return Some(AdminAnswer::failed("the server is being stopped: give the same command again to go on"));
            }
            () = &mut wait_for_hangup, if shown => return None,
            _ = reports.changed() => {
                moved = Instant::now();
                let progress = reports.borrow_and_update().clone();
                if let Some(listed) = &listed {
                    let Progress { seconds, percent, text } = progress.clone();
                    listed.report(CommandProgress { seconds, percent, text });
                }
                let progress = AdminReply::Progress(progress).encode();
                if shown && !matches!(timeout(ANSWER_TIME_MAX, to.write_all(&progress)).await, Ok(Ok(()))) {
                    return None;
                }
            }
            // Bound: each report restarts the time, so a long transfer goes on while it moves.
            () = sleep_until(moved + COMMAND_TIME_MAX) => {
                return Some(AdminAnswer::failed("timeout: it may or may not have been done"));
            }
        }
    }
}

/// Runs one command.
pub(super) async fn run(context: &AdminContext, request: &AdminRequest, reporter: &ProgressReporter) -> AdminAnswer {
    let words = request_words(request);
    match find(&words) {
        CommandLookup::Command(command, args) => {
            let json = words.len() < request.args.len();
            command.run(CommandCall { context, args, request, json, reporter }).await
        }
        CommandLookup::Other(answer) => answer,
    }
}

/// Whether the command of a request reports progress.
fn reports_progress(request: &AdminRequest) -> bool {
    matches!(find(&request_words(request)), CommandLookup::Command(command, _) if command.reports_progress)
}

/// The arguments without [`JSON`].
fn request_words(request: &AdminRequest) -> Vec<&str> {
    request.args.iter().map(String::as_str).filter(|word| *word != JSON).collect()
}

/// Reads one request to its end. It allocates no more than the bytes received, whatever the length says.
async fn read_request(from: &mut (impl AsyncRead + Unpin)) -> Result<AdminRequest, BadFrame> {
    let mut prefix = [0; LENGTH_BYTES];
    from.read_exact(&mut prefix).await.map_err(|_| BadFrame::Short)?;
    let length = body_length(prefix, REQUEST_BYTES_MAX)?;
    // The buffer grows with the bytes that arrive: a false length allocates nothing.
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body).await.map_err(|_| BadFrame::Short)?;
    if body.len() < length { Err(BadFrame::Short) } else { AdminRequest::decode(&body) }
}

fn refusal(bad: &BadFrame) -> String {
    match bad {
        BadFrame::Malformed => {
            format!("the request {bad}: does kv-admin have the version of this server, {}?", env!("CARGO_PKG_VERSION"))
        }
        BadFrame::Short | BadFrame::Long { .. } | BadFrame::TooManyArgs(_) => format!("the request {bad}"),
    }
}

/// Waits until the client hangs up, and drops what it still sends.
async fn wait_for_hangup(from: &mut (impl AsyncRead + Unpin)) {
    let mut unheard = [0; 64];
    while from.read(&mut unheard).await.is_ok_and(|count| count > 0) {}
}

/// Reads the rest of a malformed request: closing over unread bytes would reset the connection and lose the answer.
async fn skip_rest(from: &mut (impl AsyncRead + Unpin)) -> io::Result<u64> {
    tokio::io::copy(&mut from.take(REQUEST_BYTES_MAX as u64), &mut tokio::io::sink()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn malformed_requests_are_refused() {
        for (bytes, bad) in [
            (&[][..], BadFrame::Short),
            (&[0, 0], BadFrame::Short),
            (&[0xff; 8], BadFrame::Long { bytes: 0xffff_ffff, max: REQUEST_BYTES_MAX }),
            (&[0, 0, 0, 9, b'['], BadFrame::Short),
            (&[0, 0, 0, 0], BadFrame::Malformed),
        ] {
            assert_eq!(read_request(&mut &bytes[..]).await, Err(bad));
        }
    }

    #[tokio::test]
    async fn a_request_is_read_to_its_end() {
        let request = AdminRequest { args: vec!["ping".into()], progress: true, ..AdminRequest::default() };
        let bytes = [&request.encode().unwrap()[..], b"more"].concat();
        let mut from = &bytes[..];
        assert_eq!((read_request(&mut from).await, from), (Ok(request), &b"more"[..]));
    }
}
