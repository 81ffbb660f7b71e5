//! Time and memory of a connection, with a clock that the test moves.

use PbField::Bytes;
use larder_testkit::pb::{PbField, frame, message};
use tokio::time::Instant;

use super::*;
use crate::pb::testing::{connection, gateway};

const KEY: [PbField<'_>; 2] = [Bytes(1, b"b"), Bytes(2, b"k")];

fn put(bytes: usize) -> Vec<u8> {
    let content = message(&[Bytes(1, &vec![b'v'; bytes])]);
    frame(11, &message(&[&KEY[..], &[Bytes(4, &content)]].concat()))
}

fn get() -> Vec<u8> {
    frame(9, &message(&KEY))
}

/// Sends all of `requests`, closes, and returns all answers.
async fn ask(gateway: &Arc<Gateway>, requests: &[u8]) -> Vec<u8> {
    let (client, mut connection) = connection(gateway, 1 << 20);
    let (mut reading, mut writing) = tokio::io::split(client);
    let mut answers = Vec::new();
    let write = async {
        writing.write_all(requests).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let serve = connection.serve(std::future::pending());
    let (_, read, _) = tokio::join!(write, reading.read_to_end(&mut answers), serve);
    read.unwrap();
    answers
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_late_gets_no_byte_twice() {
    let gateway = gateway().await;
    // Small values: many answers wait in one buffer, of which a part goes out.
    ask(&gateway, &put(1000)).await;
    let requests = get().repeat(150);
    let whole = ask(&gateway, &requests).await;
    assert!(whole.len() > 150_000);
    let (mut client, mut connection) = connection(&gateway, 10_000);
    let late = async {
        client.write_all(&requests).await.unwrap();
        // Longer than a client may be silent in the middle of an answer.
        tokio::time::sleep(Duration::from_secs(25)).await;
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).await.unwrap();
        answers
    };
    let begun = Instant::now();
    let (answers, _) = tokio::join!(late, connection.serve(std::future::pending()));
    assert!(whole.starts_with(&answers), "{} bytes are the first of the answers", answers.len());
    assert!(answers.len() < whole.len() && begun.elapsed() < Duration::from_secs(60), "the connection was closed");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_byte_by_byte_is_given_up() {
    let gateway = gateway().await;
    for sent in [&put(100)[..3], &put(100)[..40]] {
        let (mut client, mut connection) = connection(&gateway, 10_000);
        let trickle = async {
            for byte in sent {
                // It may be given up before the last byte.
                let _ = client.write_all(&[*byte]).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            // Not dropped: the client would end the connection itself.
            client.read_to_end(&mut Vec::new()).await.unwrap();
        };
        let begun = Instant::now();
        tokio::join!(trickle, connection.serve(std::future::pending()));
        assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_holds_no_buffer_of_an_earlier_request() {
    let gateway = gateway().await;
    // Refused, so that no store holds the value either.
    let content = message(&[Bytes(1, &vec![b'v'; 4_000_000])]);
    let refused = frame(11, &message(&[&KEY[..], &[Bytes(4, &content), Bytes(16, b"nosuch")]].concat()));
    // Silent after a request, and in the middle of the next one.
    for (requests, next) in [(2, get()), (1, put(9)[..3].to_vec())] {
        let (mut client, mut connection) = connection(&gateway, 1 << 24);
        client.write_all(&[&refused[..], &next[..]].concat()).await.unwrap();
        let mut watchers = ConnectionWatchers::new();
        let mut taken = 0;
        while taken < requests {
            match FrameHead::parse(&connection.input).unwrap() {
                Some(head) => {
                    connection.take_request(head).await.unwrap();
                    taken += 1;
                }
                None => connection.wait_for_request(&mut watchers).await.unwrap(),
            }
        }
        // A part of the next request may still arrive; then nothing.
        let silent = async { while connection.wait_for_request(&mut watchers).await.is_ok() {} };
        assert!(tokio::time::timeout(Duration::from_secs(1), silent).await.is_err(), "the connection stays open");
        // A buffer shows the memory that it still shares with an earlier request only when asked for it.
        let held = [&mut connection.input, &mut connection.output].map(|buffer| buffer.try_reclaim(16 * READ_BYTES));
        assert_eq!(held, [false, false]);
    }
}
