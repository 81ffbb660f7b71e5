//! A corpus of objects through both faces: each is written through one and read through the other, and the reverse.

use larder_testkit::SplitMix64;

use crate::pb::faces::{Face, FaceAddress, FaceObject, Faces, SeenValue};
use crate::support::RiakServer;

const BOTH: [Face; 2] = [Face::Http, Face::Pb];
/// Random objects of a run.
const RANDOM_STEPS: usize = 400;

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn links(list: &[[&str; 3]]) -> Vec<[String; 3]> {
    list.iter().map(|link| link.map(str::to_owned)).collect()
}

/// The corpus: a name, which is a part of the key, and the object.
fn objects() -> Vec<(&'static str, FaceObject)> {
    let text = FaceObject::text;
    let media = |content_type: &str| FaceObject { content_type: content_type.into(), ..text("v") };
    let charset = |charset: &str| FaceObject { charset: Some(charset.into()), ..text("v") };
    let encoding = |encoding: &str| FaceObject { encoding: Some(encoding.into()), ..text("v") };
    let meta = |list: &[(&str, &str)]| FaceObject { meta: pairs(list), ..text("v") };
    let terms = |list: &[(&str, &str)]| FaceObject { terms: pairs(list), ..text("v") };
    let linked = |list: &[[&str; 3]]| FaceObject { links: links(list), ..text("v") };
    let value = |value: Vec<u8>| FaceObject { value, ..text("") };
    vec![
        ("text", text("green")),
        ("empty", text("")),
        ("every byte", value((0..=255).collect())),
        ("line ends", value(b"\r\n--\r\n\r\n".to_vec())),
        ("70 KB", value(b"seventy".repeat(10_000))),
        ("1 MB and more", value(b"large value".repeat(120_000))),
        ("json", FaceObject { value: b"{\"a\":1}".to_vec(), ..media("application/json") }),
        ("octets", media("application/octet-stream")),
        ("odd media", media("a/b+c.d-e")),
        ("utf-8", charset("utf-8")),
        ("latin", charset("ISO-8859-1")),
        ("deflate", encoding("deflate")),
        ("own encoding", encoding("x-own")),
        ("charset and encoding", FaceObject { encoding: Some("br".into()), ..charset("utf-16") }),
        ("one word of meta", meta(&[("X-Riak-Meta-Color", "green")])),
        ("meta", meta(&[("X-Riak-Meta-A", "1"), ("X-Riak-Meta-B-C", "two words"), ("X-Riak-Meta-Z", "~!@#$%^&*()")])),
        ("empty meta", meta(&[("X-Riak-Meta-E", "")])),
        ("a link", linked(&[["to", "there", "t"]])),
        ("links", linked(&[["a", "1", "x"], ["a", "2", "x"], ["b", "1", "y"]])),
        ("odd links", linked(&[["a b", "c/d", "t"], ["é", "%", "u"]])),
        ("an integer term", terms(&[("n_int", "7")])),
        ("integer terms", terms(&[("n_int", "-5"), ("n_int", "9"), ("m_int", "123456789012345678901234567890")])),
        ("binary terms", terms(&[("s_bin", "x"), ("s_bin", "y"), ("t_bin", "a%b")])),
        (
            "everything",
            FaceObject {
                value: b"all".to_vec(),
                content_type: "text/x-all".into(),
                charset: Some("utf-8".into()),
                encoding: Some("deflate".into()),
                links: links(&[["to", "there", "t"]]),
                meta: pairs(&[("X-Riak-Meta-Color", "green")]),
                terms: pairs(&[("n_int", "7"), ("s_bin", "x")]),
            },
        ),
        ("kéy / with % odd ? bytes", text("odd key")),
    ]
}

fn faces(server: &RiakServer) -> Faces {
    server.make_type("many", r#"{"allow_mult":true}"#, true);
    server.make_type("lww", r#"{"last_write_wins":true,"dvv_enabled":false}"#, true);
    server.make_type("wonce", r#"{"write_once":true}"#, true);
    server.make_type("strong", r#"{"consistent":true}"#, true);
    Faces { http: server.client(), pb: server.pb() }
}

/// The value without what the server adds to every write.
fn plain(seen: &SeenValue) -> SeenValue {
    SeenValue { vtag: String::new(), modified: 0, ..seen.clone() }
}

#[test]
fn every_object_of_the_corpus_is_stored_and_shown_alike_through_both_faces() {
    let server = RiakServer::start();
    let mut faces = faces(&server);
    for (name, object) in objects() {
        for (writer, other) in [(Face::Http, Face::Pb), (Face::Pb, Face::Http)] {
            let key = format!("{name} {writer:?}");
            let at = FaceAddress { bucket_type: "many", key: &key };
            faces.put(writer, at, &object, None);
            let seen = faces.see(at);
            assert_eq!(seen.values.iter().map(plain).collect::<Vec<_>>(), [object.as_seen()], "{key}");
            assert!(!seen.values[0].vtag.is_empty() && seen.values[0].modified > 1_500_000_000);
            // The other face replaces it with the context that this one gave.
            faces.put(other, at, &FaceObject::text("after"), seen.context.as_deref());
            let after = faces.see(at);
            assert_eq!(after.values.iter().map(plain).collect::<Vec<_>>(), [FaceObject::text("after").as_seen()]);
            assert_ne!(after.context, seen.context);
        }
    }
    server.stop();
}

#[test]
fn siblings_resolutions_and_tombstones_are_the_same_through_both_faces() {
    let server = RiakServer::start();
    let mut faces = faces(&server);
    for (first, second) in [(Face::Http, Face::Pb), (Face::Pb, Face::Http), (Face::Pb, Face::Pb)] {
        let key = format!("{first:?} {second:?}");
        let at = FaceAddress { bucket_type: "many", key: &key };
        faces.put(first, at, &FaceObject::text("one"), None);
        faces.put(second, at, &FaceObject { encoding: Some("gzip".into()), ..FaceObject::text("two") }, None);
        let both = faces.see(at);
        assert_eq!(both.values.len(), 2, "two writers that saw nothing");
        // A third that saw both, and one that saw them too but comes late.
        faces.put(second, at, &FaceObject::text("three"), both.context.as_deref());
        faces.put(first, at, &FaceObject::text("late"), both.context.as_deref());
        let values: Vec<_> = faces.see(at).values.into_iter().map(|seen| seen.value).collect();
        assert_eq!(values, [b"late".to_vec(), b"three".to_vec()]);
        // A delete that saw neither of them leaves both; one that sees all leaves a tombstone, whose context both show.
        faces.delete(first, at, both.context.as_deref());
        let kept = faces.see(at);
        assert_eq!(kept.values.len(), 2);
        faces.delete(second, at, kept.context.as_deref());
        let gone = faces.see(at);
        assert_eq!((gone.values.len(), gone.context.is_some()), (0, true));
        faces.put(first, at, &FaceObject::text("again"), gone.context.as_deref());
        assert_eq!(faces.see(at).values.len(), 1);
    }
    let never = faces.see(FaceAddress { bucket_type: "many", key: "never written" });
    assert_eq!((never.values.len(), never.context), (0, None));
    server.stop();
}

#[test]
fn every_policy_of_conflicts_is_the_same_through_both_faces() {
    let server = RiakServer::start();
    let mut faces = faces(&server);
    for bucket_type in ["default", "lww", "wonce", "strong"] {
        for (first, second) in [(Face::Http, Face::Pb), (Face::Pb, Face::Http)] {
            let key = format!("{first:?} {second:?}");
            let at = FaceAddress { bucket_type, key: &key };
            faces.put(first, at, &FaceObject::text("one"), None);
            let seen = faces.see(at);
            assert_eq!(seen.values.len(), 1, "{bucket_type}");
            faces.put(second, at, &FaceObject::text("two"), seen.context.as_deref());
            assert_eq!(faces.see(at).values.len(), 1, "{bucket_type}");
            let context = faces.see(at).context;
            faces.delete(first, at, context.as_deref());
            assert_eq!(faces.see(at).values.len(), 0, "{bucket_type}");
        }
    }
    server.stop();
}

#[test]
fn a_value_without_a_type_is_octets_over_http() {
    let server = RiakServer::start();
    let mut faces = faces(&server);
    let at = FaceAddress { bucket_type: "many", key: "untyped" };
    let content = larder_testkit::pb::message(&[larder_testkit::pb::PbField::Bytes(1, b"v")]);
    let fields = [&at.fields(16)[..], &[larder_testkit::pb::PbField::Bytes(4, &content)]].concat();
    assert_eq!(faces.pb.ask(11, &fields).0, 12);
    assert_eq!(faces.see(at).values.len(), 1);
    server.stop();
}

#[test]
fn random_objects_are_the_same_through_both_faces() {
    let server = RiakServer::start();
    let mut faces = faces(&server);
    let mut random = SplitMix64::from_environment("random objects through both faces");
    for step in 0..RANDOM_STEPS {
        let key = format!("k{}", random.below(12));
        let at = FaceAddress { bucket_type: random.pick::<&str>(&["many", "many", "default", "lww"]), key: &key };
        let face = *random.pick(&BOTH);
        let context = if random.chance(600) { faces.see(at).context } else { None };
        if random.chance(150) {
            faces.delete(face, at, context.as_deref());
        } else {
            let object = random_object(&mut random, step);
            faces.put(face, at, &object, context.as_deref());
            let seen = faces.see(at);
            assert!(seen.values.iter().map(plain).any(|seen| seen == object.as_seen()), "{step} {face:?} {object:?}");
        }
        faces.see(at);
    }
    server.stop();
}

fn random_object(random: &mut SplitMix64, step: usize) -> FaceObject {
    let word = |random: &mut SplitMix64| {
        let length = 1 + random.below(12);
        (0..length).map(|_| char::from(*random.pick(b"abcXYZ0189-_.~"))).collect::<String>()
    };
    let length = if random.chance(50) { 100_000 } else { 200 };
    let length = random.below(length);
    let mut object = FaceObject {
        value: [random.bytes(length), step.to_string().into_bytes()].concat(),
        content_type: format!("a/{}", word(random)),
        charset: random.chance(300).then(|| word(random)),
        encoding: random.chance(300).then(|| word(random)),
        ..FaceObject::default()
    };
    for at in 0..random.below(4) {
        object.links.push([word(random), word(random), word(random)]);
        object.meta.push((format!("X-Riak-Meta-{at}{}", word(random)), word(random)));
        object.terms.push((format!("f{at}_bin"), word(random)));
        object.terms.push((format!("g{at}_int"), (random.number() as i64).to_string()));
    }
    object
}
