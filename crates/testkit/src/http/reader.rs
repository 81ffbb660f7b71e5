//! Reads an answer from bytes.

use std::io::{self, BufRead, ErrorKind, Read as _, Write};

use super::HttpResponse;

/// Reads one answer to a request with this method. Its body goes to `body` if that is given.
///
/// # Errors
/// When the bytes end before the answer does, or are none.
pub(super) fn read_response(
    stream: &mut impl BufRead,
    method: &str,
    body: Option<&mut dyn Write>,
) -> io::Result<HttpResponse> {
    let (status, headers) = read_head(stream)?;
    let mut response = HttpResponse { status, headers, body: Vec::new() };
    if method != "HEAD" && !matches!(status, 100 | 204 | 304) {
        let mut kept = Vec::new();
        read_body(stream, &response, body.unwrap_or(&mut kept))?;
        response.body = kept;
    }
    Ok(response)
}

fn read_head(stream: &mut impl BufRead) -> io::Result<(u16, Vec<(String, String)>)> {
    let line = read_line(stream)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| invalid(&format!("not a status line: {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok((status, headers));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid(&format!("not a header: {line:?}")))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_body(stream: &mut impl BufRead, response: &HttpResponse, body: &mut dyn Write) -> io::Result<()> {
    if response.header("Transfer-Encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        while read_chunk(stream, body)? {}
    } else if let Some(length) = response.header("Content-Length") {
        read_exactly(stream, length.parse().map_err(|_| invalid("not a length"))?, body)?;
    } else {
        io::copy(stream, body)?;
    }
    Ok(())
}

/// Adds one chunk to `body`; `false` after the last.
fn read_chunk(stream: &mut impl BufRead, body: &mut dyn Write) -> io::Result<bool> {
    let line = read_line(stream)?;
    let length = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
    let length = length.map_err(|_| invalid(&format!("not a chunk size: {line:?}")))?;
    read_exactly(stream, length, body)?;
    read_line(stream)?;
    Ok(length > 0)
}

fn read_exactly(stream: &mut impl BufRead, length: u64, body: &mut dyn Write) -> io::Result<()> {
    match io::copy(&mut stream.by_ref().take(length), body)? {
        read if read < length => Err(ended()),
        _ => Ok(()),
    }
}

/// A line without its end, as UTF-8, or else as Latin-1.
fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(ended());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8(line).unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect()))
}

fn ended() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the connection ended")
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}
