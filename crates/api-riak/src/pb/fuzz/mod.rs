//! Random input for the decoders, and for the requests behind them; the same input for the same seed.
//!
//! ```text
//! frames     a stream of frames, cut anywhere as it arrives     the same frames, and no more memory than bytes
//! messages   fields in the shape of a request, then damaged     decoded to what encodes to the same, or refused
//! requests   the same over a connection, to a gateway           whole frames in order, each the answer or an error
//! ```
//! A test run takes a second for each, `LARDER_TEST_SCALE=soak` ten minutes.

#![allow(clippy::disallowed_methods, reason = "a test reads its length and its seed from the environment")]

mod shapes;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use larder_kv::Gateway;
use larder_testkit::pb::{PbMessage, frame};
use larder_testkit::{Scale, SplitMix64};
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::datatypes::{DtFetchReq, DtUpdateReq, RpbCounterGetReq, RpbCounterUpdateReq, count_edits};
use super::frame::FrameHead;
use super::messages::{
    RpbBucketReq, RpbClientId, RpbDelReq, RpbGetBucketKeyPreflistReq, RpbGetBucketTypeReq, RpbGetReq,
    RpbListBucketsReq, RpbListKeysReq, RpbPutReq, RpbSetBucketReq, RpbSetBucketTypeReq,
};
use super::{content, props, put_scan, testing};
use shapes::{SHAPES, damage, shaped};

/// Requests to one gateway: its memory grows with the keys that are made.
const REQUESTS_PER_GATEWAY: usize = 20_000;
/// Requests of one connection.
const REQUESTS_PER_CONNECTION: usize = 16;

/// Inputs of a run at least, however long they take.
const CASES_MIN: u64 = 100;

/// Runs `case` with one generator after the other until the time is over, and says how many it ran.
fn repeat(name: &str, mut case: impl FnMut(&mut SplitMix64)) {
    let time = Scale::current().pick(Duration::from_secs(1), Duration::from_secs(600));
    let mut random = SplitMix64::from_environment(name);
    let (begun, mut cases) = (Instant::now(), 0_u64);
    // A busy machine must not make it pass without input.
    while begun.elapsed() < time || cases < CASES_MIN {
        case(&mut random);
        cases += 1;
    }
    eprintln!("{name}: {cases} inputs in {} s", time.as_secs());
}

fn request(random: &mut SplitMix64) -> (u8, Vec<u8>) {
    let (code, shape) = *random.pick(SHAPES);
    let mut message = shaped(random, shape);
    damage(random, &mut message);
    (code, message)
}

#[test]
fn frames_are_the_same_however_their_bytes_arrive() {
    repeat("frames", |random| {
        let mut stream = Vec::new();
        for _ in 0..random.below(9) {
            let (code, message) = request(random);
            stream.extend(frame(code, &message));
        }
        damage(random, &mut stream);
        let cuts = random.number();
        check_frames(&stream, cuts);
    });
}

/// Takes the frames of a stream whose bytes arrive at once, and in pieces of lengths from a seed.
fn check_frames(stream: &[u8], cuts: u64) {
    let whole = read_frames([stream]);
    let mut random = SplitMix64::new(cuts);
    let (mut pieces, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(1 + random.below(64)));
        pieces.push(piece);
        rest = after;
    }
    assert_eq!(read_frames(pieces), whole);
}

/// The frames of a stream, and whether it can go on.
fn read_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(u8, Bytes)>, bool) {
    let (mut input, mut frames, mut arrived) = (BytesMut::new(), Vec::new(), 0);
    for piece in pieces {
        arrived += piece.len();
        input.extend_from_slice(piece);
        loop {
            let Ok(head) = FrameHead::parse(&input) else { return (frames, false) };
            let Some((head, message)) = head.and_then(|head| Some((head, head.take(&mut input)?))) else { break };
            assert_eq!(message.len(), head.length);
            frames.push((head.code, message));
        }
        assert!(input.capacity() <= 2 * arrived + 64, "{arrived} bytes arrived, {} are held", input.capacity());
    }
    (frames, true)
}

#[test]
fn messages_are_decoded_to_what_encodes_to_the_same_or_refused() {
    repeat("messages", |random| {
        let (code, message) = request(random);
        check_message(code, &message);
    });
}

fn check_message(code: u8, message: &[u8]) {
    let message = Bytes::copy_from_slice(message);
    match code {
        5 => drop(again::<RpbClientId>(message)),
        9 => drop(again::<RpbGetReq>(message)),
        11 => check_put(message),
        13 => drop(again::<RpbDelReq>(message)),
        15 => drop(again::<RpbListBucketsReq>(message)),
        17 => drop(again::<RpbListKeysReq>(message)),
        19 | 29 => drop(again::<RpbBucketReq>(message)),
        21 => {
            drop(again::<RpbSetBucketReq>(message).map(|request| props::props_json(request.props.unwrap_or_default())))
        }
        31 => drop(again::<RpbGetBucketTypeReq>(message)),
        32 => {
            drop(
                again::<RpbSetBucketTypeReq>(message)
                    .map(|request| props::props_json(request.props.unwrap_or_default())),
            );
        }
        50 => drop(again::<RpbCounterUpdateReq>(message)),
        52 => drop(again::<RpbCounterGetReq>(message)),
        80 => drop(again::<DtFetchReq>(message)),
        82 => check_update(message),
        _ => drop(again::<RpbGetBucketKeyPreflistReq>(message)),
    }
}

/// An update that decodes has as many edits as were counted, and those that count more are refused before.
fn check_update(message: Bytes) {
    let counted = count_edits(&message);
    let Some(request) = again::<DtUpdateReq>(message) else { return };
    if let Some(counted) = counted {
        let again = count_edits(&request.encode_to_vec()).expect("a message of ours");
        assert!(again <= counted, "{again} edits were decoded, {counted} counted");
    }
}

/// Decodes a message; what it decodes to encodes to bytes that decode to the same.
fn again<M: Message + Default + PartialEq + Debug>(message: Bytes) -> Option<M> {
    let decoded = M::decode(message).ok()?;
    assert_eq!(M::decode(&decoded.encode_to_vec()[..]).as_ref(), Ok(&decoded));
    Some(decoded)
}

fn check_put(message: Bytes) {
    let (length, besides) = (message.len(), put_scan::bytes_besides_value(&message));
    let Some(put) = again::<RpbPutReq>(message) else { return };
    let Some(content) = put.content else { return };
    let value = content.value.as_ref().map_or(0, Bytes::len);
    let entries = content.links.len() + content.usermeta.len() + content.indexes.len();
    if let Some(besides) = besides {
        assert!(besides <= 2 * length + 2, "no more than two bytes for a field: {besides} of {length}");
        assert!(2 * entries <= besides && value <= length, "{entries} entries in {besides} bytes");
    }
    if let Ok(stored) = content::stored_content(content) {
        assert!(stored.links.len() + stored.meta.len() + stored.terms.len() == entries);
    }
}

#[test]
fn requests_are_answered_in_order_with_their_answer_or_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut gateway, mut sent) = (runtime.block_on(testing::gateway()), 0);
    repeat("requests", |random| {
        let requests: Vec<_> = (0..1 + random.below(REQUESTS_PER_CONNECTION)).map(|_| request(random)).collect();
        sent += requests.len();
        runtime.block_on(converse(&gateway, &requests, random));
        if sent > REQUESTS_PER_GATEWAY {
            (gateway, sent) = (runtime.block_on(testing::gateway()), 0);
        }
    });
}

/// Sends all requests at once, and reads the answers until the server closes or all are answered.
async fn converse(gateway: &Arc<Gateway>, requests: &[(u8, Vec<u8>)], random: &mut SplitMix64) {
    let (client, mut connection) = testing::connection(gateway, 1 << 20);
    let (mut reading, mut writing) = tokio::io::split(client);
    let stream: Vec<u8> = requests.iter().flat_map(|(code, message)| frame(*code, message)).collect();
    let piece = 1 + random.below(stream.len().min(20_000));
    let write = async {
        for piece in stream.chunks(piece) {
            // The server may close before it has read all.
            if writing.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = writing.shutdown().await;
    };
    let mut answers = Vec::new();
    let read = async { reading.read_to_end(&mut answers).await.unwrap() };
    tokio::join!(write, read, connection.serve(std::future::pending()));
    check_answers(requests, &answers);
}

/// The code of the answer to a request, and whether several frames come until one says that it is the last.
fn answer_to((code, message): &(u8, Vec<u8>)) -> (u8, bool) {
    match code {
        31 => (20, false),
        32 => (22, false),
        15 => (16, RpbListBucketsReq::decode(&message[..]).is_ok_and(|request| request.stream == Some(true))),
        _ => (code.wrapping_add(1), matches!(code, 17 | 40)),
    }
}

fn check_answers(requests: &[(u8, Vec<u8>)], mut answers: &[u8]) {
    let mut requests = requests.iter();
    let mut streaming = None;
    while !answers.is_empty() {
        let (length, rest) = answers.split_first_chunk::<4>().expect("a whole length");
        let (body, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        answers = rest;
        let (code, message) = body.split_first().expect("a code");
        let message = PbMessage::decode(message);
        let expected = match streaming.take() {
            Some(expected) => expected,
            None => answer_to(requests.next().expect("no answer without a request")),
        };
        if *code == 0 {
            let text = message.text(1);
            assert!(!text.is_empty() && !text.contains("the server failed"), "{text}");
            continue;
        }
        assert_eq!(*code, expected.0, "{message:?}");
        let end = if *code == 41 { 3 } else { 2 };
        streaming = Some(expected).filter(|expected| expected.1 && message.number(end) != Some(1));
    }
    assert_eq!(streaming, None, "a listing ends with a frame that says so");
}
