//! Security as clients see it: connections that become encrypted, users with passwords and certificates, grants that change while a
//! connection is open, and a server that starts again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use crate::harness::{Home, KvAdmin, LarderNode, TestAuthority, connect};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

const GET: u8 = 9;
const AUTH: u8 = 253;
const START_TLS: u8 = 255;
/// Key `k` of bucket `b`, in fields 1 and 2.
const KEY: &[u8] = b"\x0a\x01b\x12\x01k";

/// Sends a frame, and returns the code and the message of its answer.
fn ask(stream: &mut (impl Read + Write), code: u8, message: &[u8]) -> io::Result<(u8, String)> {
    let length = u32::try_from(message.len() + 1).unwrap();
    stream.write_all(&[&length.to_be_bytes()[..], &[code], message].concat())?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes(head[..4].try_into().unwrap()) - 1;
    let mut message = vec![0; length as usize];
    stream.read_exact(&mut message)?;
    Ok((head[4], String::from_utf8_lossy(&message).into_owned()))
}

/// A connection that began in clear and is encrypted.
fn encrypted(at: SocketAddr, client: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let mut stream = connect(at, None).unwrap();
    assert!(ask(&mut stream, 1, b"").unwrap().1.contains("Security is enabled, please STARTTLS first"));
    assert_eq!(ask(&mut stream, START_TLS, b"").unwrap(), (START_TLS, String::new()));
    let connection = ClientConnection::new(Arc::clone(client), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    assert!(ask(&mut stream, 1, b"").unwrap().1.contains("Security is enabled, please authenticate first"));
    stream
}

fn login(user: &str, password: &str) -> Vec<u8> {
    let field = |tag: u8, text: &str| [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [field(0x0a, user), field(0x12, password)].concat()
}

fn run(admin: &KvAdmin, line: &str) {
    admin.output(&[&["security"][..], &line.split(' ').collect::<Vec<_>>()].concat());
}

/// A server with security on, and the users `pass`, with a password, and `cert`, with a certificate.
fn secured() -> (LarderNode, TestAuthority) {
    let home = Home::new();
    let authority = TestAuthority::make(home.path());
    let server = authority.sign("localhost").write(home.path(), "server");
    let args = ["--durability", "buffered", "--pb", "127.0.0.1:0", "--tls-client-ca", authority.file()];
    let node = LarderNode::start_in(home, &[&args[..], &server.args()].concat());
    let admin = node.admin();
    for line in [
        "add-user pass password=Test1234",
        "add-user cert",
        "add-source pass 127.0.0.1/32 password",
        "add-source cert 127.0.0.1/32 certificate",
        "enable",
    ] {
        run(&admin, line);
    }
    (node, authority)
}

#[test]
fn a_connection_in_clear_gets_encrypted_then_a_user_then_its_grants_as_they_change() {
    let (mut node, authority) = secured();
    let mut client = encrypted(node.pb(), &authority.client(None));
    assert_eq!(ask(&mut client, AUTH, &login("pass", "Test1234")).unwrap(), (254, String::new()));
    assert_eq!(ask(&mut client, 1, b"").unwrap(), (2, String::new()));
    let denied = "Permission denied: User 'pass' does not have 'riak_kv.get' on default/b";
    assert!(ask(&mut client, GET, KEY).unwrap().1.contains(denied));
    run(&node.admin(), "grant riak_kv.get on default b to pass");
    assert_eq!(ask(&mut client, GET, KEY).unwrap(), (10, String::new()), "the open connection sees the grant");
    run(&node.admin(), "del-user pass");
    let gone = ask(&mut client, GET, KEY).unwrap().1;
    assert!(gone.contains("please authenticate first"), "a removed user is logged in no more: {gone}");
    node.kill();
    node.restart();
    assert_eq!(node.admin().output(&["security", "status"]), "Enabled\n");
    let mut client = encrypted(node.pb(), &authority.client(Some(&authority.sign("Cert"))));
    assert_eq!(ask(&mut client, AUTH, &login("cert", "")).unwrap(), (254, String::new()));
    run(&node.admin(), "disable");
    let mut clear = connect(node.pb(), None).unwrap();
    assert_eq!(ask(&mut clear, 1, b"").unwrap(), (2, String::new()));
    assert!(ask(&mut clear, START_TLS, b"").unwrap().1.contains("Security not enabled; STARTTLS not allowed."));
}

#[test]
fn wrong_proofs_are_refused_and_the_third_ends_the_connection() {
    let (node, authority) = secured();
    let mut client = encrypted(node.pb(), &authority.client(Some(&authority.sign("other"))));
    for proof in [login("cert", "x"), login("Pass", "Test1234"), login("pass", "test1234")] {
        assert!(ask(&mut client, AUTH, &proof).unwrap().1.contains("Authentication failed"));
    }
    ask(&mut client, 1, b"").unwrap_err();
    node.client().get("/buckets/b/keys/k").expect(426);
    node.client().get("/stats").expect(200);
}

#[test]
fn requests_behind_the_start_of_tls_never_count_as_encrypted() {
    let (node, _authority) = secured();
    let mut stream = connect(node.pb(), None).unwrap();
    stream.write_all(&[&[0, 0, 0, 1, START_TLS][..], &[0, 0, 0, 1, 1]].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, [0, 0, 0, 1, START_TLS], "the connection ends, and the second request has no answer");
}
