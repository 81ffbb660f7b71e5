//! Connections from outside: their number, silence, order, clients that do not read, and clients that send what is refused.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use larder_net::{ConnectionLimit, ConnectionSettings};
use larder_testkit::pb::{PbField, PbMessage, frame, message};

use crate::pb::{GET, PUT, content, key, put, values};
use crate::support::RiakServer;

use PbField::{Bytes, Number};

fn get(name: &str) -> Vec<u8> {
    frame(GET, &message(&key("b", name)))
}

#[test]
fn a_connection_above_the_bound_gets_an_error_and_is_closed() {
    let server = RiakServer::start();
    let settings = ConnectionSettings { connections: ConnectionLimit::new(10), ..ConnectionSettings::default() };
    let first = server.pb_with(settings);
    let mut open = Vec::new();
    let mut refused = loop {
        let mut client = first.beside();
        let _ = client.send(&frame(1, &[]));
        match client.receive() {
            Some((2, _)) => open.push(client),
            Some((0, error)) => {
                assert_eq!(error.text(1), "overload");
                break client;
            }
            other => panic!("{other:?}"),
        }
        assert!(open.len() <= 10, "no more than the bound");
    };
    assert_eq!(refused.receive(), None, "the connection is closed");
    assert!(!open.is_empty(), "those within the bound are served");
    assert!(open.iter_mut().all(|client| client.ask(1, &[]).0 == 2), "and go on");
    // A place that is free again is taken again.
    open.truncate(open.len() - 1);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut client = first.beside();
        let _ = client.send(&frame(1, &[]));
        if client.receive().is_some_and(|answer| answer.0 == 2) {
            break;
        }
        assert!(Instant::now() < until, "a closed connection frees its place");
    }
    server.stop();
}

#[test]
fn a_silent_connection_is_closed_and_a_busy_one_is_not() {
    let server = RiakServer::start();
    let mut busy = server
        .pb_with(ConnectionSettings { idle_timeout: Duration::from_millis(400), ..ConnectionSettings::default() });
    let (mut silent, begun) = (busy.beside(), Instant::now());
    assert_eq!(silent.ask(1, &[]).0, 2);
    while begun.elapsed() < Duration::from_millis(1500) {
        assert_eq!(busy.ask(1, &[]).0, 2, "a connection with requests stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(silent.is_closed_within(Duration::from_millis(100)), "silence ended it long ago");
    server.stop();
}

#[test]
fn each_answer_of_a_pipeline_belongs_to_its_request() {
    let server = RiakServer::start();
    let mut client = server.pb();
    let mut sent = Vec::new();
    for at in 0..300 {
        let (name, value) = (format!("k{}", at % 7), format!("value {at}"));
        // A put, a get that sees it, and a listing in between, whose answer is several frames.
        sent.extend(frame(PUT, &message(&[&key("b", &name)[..], &[Bytes(4, &content(&value))]].concat())));
        sent.extend(get(&name));
        if at % 50 == 0 {
            sent.extend(frame(17, &message(&[Bytes(1, b"b")])));
        }
        sent.extend(frame(GET, &message(&[&key("b", &name)[..], &[Number(3, 9)]].concat())));
    }
    client.send(&sent).unwrap();
    for at in 0..300 {
        assert_eq!(client.receive().unwrap(), (12, PbMessage::default()), "put {at}");
        assert_eq!(values(&client.receive().unwrap().1), [format!("value {at}")]);
        if at % 50 == 0 {
            while client.receive().unwrap().1.number(2) != Some(1) {}
        }
        assert_eq!(client.receive().unwrap().1.text(1), "{n_val_violation,3}", "get {at}");
    }
    server.stop();
}

#[test]
fn a_client_that_does_not_read_is_held_back_and_gets_every_answer_later() {
    const REQUESTS: usize = 400;
    let server = RiakServer::start();
    let mut client = server.pb();
    let large: Vec<String> = (0..4).map(|at| at.to_string().repeat(200_000)).collect();
    for (at, value) in large.iter().enumerate() {
        put(&mut client, key("b", &format!("k{at}")), value, &[]);
    }
    // Each request is long, so that those that wait fill the buffers of both sockets.
    let padding = vec![b'p'; 50_000];
    let requests: Vec<_> = (0..REQUESTS)
        .map(|at| {
            let name = format!("k{}", at % large.len());
            frame(GET, &message(&[&key("b", &name)[..], &[Bytes(40, &padding)]].concat()))
        })
        .collect();
    let (mut writer, sent) = (client.again(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&sent);
    let writing = std::thread::spawn(move || {
        for request in requests {
            writer.send(&request).unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // It stops when the buffers of the system are full.
    let mut before = usize::MAX;
    while sent.load(Ordering::Relaxed) != before {
        before = sent.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(700));
    }
    assert!(before < REQUESTS, "{before} requests were taken from a client that reads no answer");
    for at in 0..REQUESTS {
        assert_eq!(values(&client.receive().unwrap().1)[0], large[at % large.len()], "answer {at}");
    }
    writing.join().unwrap();
    server.stop();
}

#[test]
fn requests_before_the_end_of_the_input_are_answered() {
    let server = RiakServer::start();
    let mut client = server.pb();
    let sent: Vec<u8> = (0..1000).flat_map(|_| frame(1, &[])).collect();
    client.send(&[&sent[..], &[0, 0, 0, 9, GET]].concat()).unwrap();
    client.close(Shutdown::Write);
    for at in 0..1000 {
        assert_eq!(client.receive(), Some((2, PbMessage::default())), "answer {at}");
    }
    assert_eq!(client.receive(), None, "half a request has no answer");
    server.stop();
}

#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let server = RiakServer::start();
    // An unknown code ends the connection: nothing says that this is a frame.
    for (code, bytes) in [(200, 4_000_000), (200, 40_000_000)] {
        let mut client = server.pb();
        // All of it is sent before anything is read, as clients do.
        client.send(&frame(code, &vec![0; bytes])).expect("the connection stays until the client has sent");
        assert_eq!(client.receive().unwrap().1.text(1), format!("{{too_large,{bytes}}}"));
        assert_eq!(client.receive(), None);
    }
    server.stop();
}

#[test]
fn a_client_id_is_no_store_of_bytes() {
    let server = RiakServer::start();
    let mut client = server.pb();
    assert_eq!(client.ask(5, &[Bytes(1, &[7; 1000])]).0, 6);
    assert!(client.refused(5, &[Bytes(1, &[7; 60_000])]).starts_with("{too_large,"));
    server.stop();
}

#[test]
fn an_object_with_more_empty_links_than_a_row_counts_is_refused() {
    let server = RiakServer::start();
    let mut client = server.pb();
    for (links, taken) in [(32_000, true), (70_000, false)] {
        let name = links.to_string();
        let content = message(&vec![Bytes(6, b""); links]);
        let (code, answer) = client.ask(PUT, &[&key("b", &name)[..], &[Bytes(4, &content)]].concat());
        assert_eq!(code == 12, taken, "{answer:?}");
        let (code, found) = client.ask(GET, &key("b", &name));
        assert_eq!((code, found.all(1).count()), (10, usize::from(taken)), "what is stored can be read");
    }
    server.stop();
}

#[test]
fn a_preflist_in_a_bucket_of_a_huge_n_val_takes_no_memory() {
    let server = RiakServer::start();
    let mut client = server.pb();
    let huge = message(&[Number(1, u64::from(u32::MAX))]);
    assert_eq!(client.ask(21, &[Bytes(1, b"b"), Bytes(2, &huge)]).0, 22);
    let (code, preflist) = client.ask(33, &key("b", "k"));
    assert_eq!((code, preflist.all(1).count()), (34, 64), "no more than a ring has partitions");
    server.stop();
}

#[test]
fn connections_are_counted_in_stats() {
    let server = RiakServer::start();
    let stats = || {
        let stats = server.client().get("/stats").json();
        ["pbc_active", "pbc_connects", "pbc_connects_total"].map(|name| stats[name].as_u64().unwrap())
    };
    assert_eq!(stats(), [0, 0, 0]);
    let first = server.pb();
    let mut clients = [first.beside(), first.beside(), first];
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(1, &[]).0, 2));
    assert_eq!(stats(), [3, 3, 3]);
    drop(clients);
    let until = Instant::now() + Duration::from_secs(10);
    while stats() != [0, 3, 3] {
        assert!(Instant::now() < until, "{:?}", stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}
