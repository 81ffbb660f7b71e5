//! Messages in the shape of requests, and damage to their bytes.

use larder_testkit::SplitMix64;
use larder_testkit::pb::{PbField, message};

/// The kind of value that a field has.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    /// A type, a bucket, a key or a header's value.
    Name,
    /// A context: none of a server's.
    Context,
    /// A replica count or another number.
    Number,
    /// A flag.
    Flag,
    /// The name of a bucket type with a data type.
    TypeName,
    /// A number from 0 to 6.
    Small,
    /// A message within.
    Within(&'static [(u32, FieldKind)]),
    /// A message within that most requests need.
    Always(&'static [(u32, FieldKind)]),
}

use FieldKind::{Always, Context, Flag, Name, Number, Small, TypeName, Within};

/// Codes of requests with their fields.
pub(super) const SHAPES: &[(u8, &[(u32, FieldKind)])] = &[
    (1, &[]),
    (3, &[]),
    (5, &[(1, Name)]),
    (7, &[]),
    (9, GET),
    (11, PUT),
    (13, DELETE),
    (15, &[(1, Number), (2, Flag), (3, Name)]),
    (17, &[(1, Name), (2, Number), (3, Name)]),
    (19, &[(1, Name), (2, Name)]),
    (21, &[(1, Name), (2, Within(PROPS)), (3, Name)]),
    (23, &[(1, Name), (2, Name)]),
    (25, INDEX),
    (29, &[(1, Name), (2, Name)]),
    (31, &[(1, Name)]),
    (32, &[(1, Name), (2, Within(PROPS))]),
    (33, &[(1, Name), (2, Name), (3, Name)]),
    (40, &[(1, Name), (2, Name), (3, Name), (4, Flag), (5, Flag), (6, Name), (7, Number), (8, Number), (9, Name)]),
    (50, &[(1, Name), (2, Name), (3, Number), (4, Number), (6, Number), (7, Flag), (8, Number), (1000, Name)]),
    (52, &[(1, Name), (2, Name), (3, Number), (4, Number), (5, Flag), (6, Flag), (7, Number)]),
    (80, DT_FETCH),
    (82, DT_UPDATE),
    (82, DT_UPDATE),
    (253, &[(1, Name), (2, Name)]),
    (255, &[]),
];

const INDEX: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, Number),
    (4, Name),
    (5, Name),
    (6, Name),
    (7, Flag),
    (8, Flag),
    (9, Number),
    (10, Name),
    (11, Number),
    (12, Name),
    (13, Name),
    (14, Flag),
];
const GET: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, Number),
    (4, Number),
    (5, Flag),
    (6, Flag),
    (7, Context),
    (8, Flag),
    (9, Flag),
    (10, Number),
    (11, Flag),
    (12, Number),
    (13, Name),
    (14, Number),
];
const PUT: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, Context),
    (4, Within(CONTENT)),
    (5, Number),
    (6, Number),
    (7, Flag),
    (8, Number),
    (9, Flag),
    (10, Flag),
    (11, Flag),
    (12, Number),
    (13, Flag),
    (14, Flag),
    (15, Number),
    (16, Name),
    (17, Number),
];
const DELETE: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, Number),
    (4, Context),
    (5, Number),
    (6, Number),
    (7, Number),
    (8, Number),
    (9, Number),
    (10, Number),
    (11, Flag),
    (12, Number),
    (13, Name),
];
const CONTENT: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, Name),
    (4, Name),
    (5, Name),
    (6, Within(&[(1, Name), (2, Name), (3, Name)])),
    (6, Within(&[(1, Name), (2, Name), (3, Name)])),
    (7, Number),
    (8, Number),
    (9, Within(&[(1, Name), (2, Name)])),
    (10, Within(&[(1, Name), (2, Name)])),
    (10, Within(&[(1, Name), (2, Number)])),
    (11, Flag),
];
const DT_FETCH: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, TypeName),
    (4, Number),
    (5, Number),
    (6, Flag),
    (7, Flag),
    (8, Number),
    (9, Flag),
    (10, Number),
    (11, Flag),
    (12, Number),
];
const DT_UPDATE: &[(u32, FieldKind)] = &[
    (1, Name),
    (2, Name),
    (3, TypeName),
    (4, Context),
    (5, Always(DT_OP)),
    (6, Number),
    (7, Number),
    (8, Number),
    (9, Flag),
    (10, Number),
    (12, Number),
    (13, Flag),
    (14, Number),
    (1000, Name),
];
const ADDS: &[(u32, FieldKind)] = &[(1, Name), (1, Name), (1, Name)];
const SET_OP: &[(u32, FieldKind)] = &[(1, Name), (1, Name), (2, Name), (2, Name)];
const MAP_FIELD: &[(u32, FieldKind)] = &[(1, Name), (2, Small)];
static MAP_UPDATE: [(u32, FieldKind); 6] = [
    (1, Always(MAP_FIELD)),
    (2, Within(&[(1, Number)])),
    (3, Within(SET_OP)),
    (4, Name),
    (5, Small),
    (6, Within(&MAP_OP)),
];
static MAP_OP: [(u32, FieldKind); 4] =
    [(1, Within(MAP_FIELD)), (2, Within(&MAP_UPDATE)), (2, Within(&MAP_UPDATE)), (2, Within(&MAP_UPDATE))];
const DT_OP: &[(u32, FieldKind)] =
    &[(1, Within(&[(1, Number)])), (2, Within(SET_OP)), (3, Always(&MAP_OP)), (4, Within(ADDS)), (5, Within(ADDS))];
const FUNCTION: &[(u32, FieldKind)] = &[(1, Name), (2, Name)];
const HOOK: &[(u32, FieldKind)] = &[(1, Within(FUNCTION)), (2, Name)];
const PROPS: &[(u32, FieldKind)] = &[
    (1, Number),
    (2, Flag),
    (3, Flag),
    (4, Within(HOOK)),
    (5, Flag),
    (6, Within(HOOK)),
    (7, Flag),
    (8, Within(FUNCTION)),
    (9, Within(FUNCTION)),
    (10, Number),
    (12, Number),
    (14, Number),
    (15, Number),
    (16, Number),
    (18, Number),
    (20, Flag),
    (21, Flag),
    (22, Name),
    (24, Number),
    (25, Name),
    (26, Name),
    (27, Flag),
    (28, Flag),
    (29, Number),
];

const NAMES: &[&[u8]] = &[
    b"b",
    b"k",
    b"b",
    b"k",
    b"k2",
    b"",
    b"default",
    b"many",
    b"nosuch",
    b"a_int",
    b"s_bin",
    b"7",
    b"text/plain",
    b"set",
    b"\xff\0\n",
    b"X-Riak-Meta-A",
];
const TYPE_NAMES: &[&[u8]] =
    &[b"counters", b"sets", b"maps", b"maps", b"hlls", b"gsets", b"default", b"many", b"nosuch"];
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    100,
    60_000,
    4_294_967_290,
    4_294_967_291,
    4_294_967_292,
    4_294_967_293,
    4_294_967_294,
    u64::MAX,
    1 << 31,
    1 << 63,
];

/// A message with some of these fields, and now and then one that it does not have.
pub(super) fn shaped(random: &mut SplitMix64, shape: &[(u32, FieldKind)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, kind) in shape {
        // The first fields are the address, which most requests need.
        let is_needed = *number <= 2 || matches!(kind, Always(_) | TypeName);
        if random.chance(if is_needed { 900 } else { 250 }) {
            put(random, &mut out, *number, *kind);
        }
    }
    if random.chance(100) {
        let number = 1 + random.below(40) as u32;
        let kind = *random.pick(&[Name, Number, Within(CONTENT), Within(HOOK)]);
        put(random, &mut out, number, kind);
    }
    out
}

fn put(random: &mut SplitMix64, out: &mut Vec<u8>, number: u32, kind: FieldKind) {
    let long;
    let field = match kind {
        Name if random.chance(20) => {
            long = vec![b'l'; random.below(20_000)];
            PbField::Bytes(number, &long)
        }
        Name => PbField::Bytes(number, random.pick::<&[u8]>(NAMES)),
        Context => {
            let length = random.below(80);
            long = random.bytes(length);
            PbField::Bytes(number, &long)
        }
        Number => PbField::Number(number, *random.pick(NUMBERS)),
        Flag => PbField::Number(number, random.number_below(2)),
        TypeName => PbField::Bytes(number, random.pick::<&[u8]>(TYPE_NAMES)),
        Small => PbField::Number(number, random.number_below(7)),
        Within(shape) | Always(shape) => {
            long = shaped(random, shape);
            PbField::Bytes(number, &long)
        }
    };
    out.extend(message(&[field]));
}

/// Damages bytes in one of the ways that bytes go wrong; most of the time not at all.
pub(super) fn damage(random: &mut SplitMix64, bytes: &mut Vec<u8>) {
    while random.chance(350) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.number() as u8),
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            // A length or a number that is as long as they come, or longer.
            4 => drop(bytes.splice(at..at, vec![0xff; 1 + random.below(11)])),
            5 => drop(bytes.splice(at..at, bytes[at..].to_vec())),
            _ => {
                // The start of a group, of eight bytes, of four.
                let key = (1 + random.below(30)) << 3 | *random.pick(&[3, 4, 1, 5]);
                bytes.insert(at, key as u8);
            }
        }
        // Copies of copies grow without an end.
        bytes.truncate(200_000);
    }
}
