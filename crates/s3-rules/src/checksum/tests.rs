use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::version::tests::{algorithm, checksum};

fn split(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    starts.zip(ends).map(|(start, end)| bytes[start..end].to_vec()).collect()
}

proptest! {
    #[test]
    fn checksums_parse_from_their_texts(checksum in checksum()) {
        prop_assert_eq!(Checksum::parse(checksum.algorithm, &checksum.text()), Some(checksum));
    }

    #[test]
    fn random_text_is_a_checksum_or_none(algorithm in algorithm(), text: String) {
        let _ = Checksum::parse(algorithm, &text);
    }

    #[test]
    fn the_checksum_does_not_depend_on_the_pieces(
        algorithm in algorithm(), bytes in vec(any::<u8>(), 0..3000), cuts in vec(any::<usize>(), 0..5),
    ) {
        let mut hasher = ChecksumHasher::new(algorithm);
        let mut md5 = Md5Hasher::default();
        for piece in split(&bytes, &cuts) {
            hasher.update(&piece);
            md5.update(&piece);
        }
        prop_assert_eq!(Checksum::full(algorithm, hasher.finish()), ChecksumHasher::digest(algorithm, &bytes));
        prop_assert_eq!(md5.finish(), Md5Hasher::digest(&bytes));
    }

    #[test]
    fn parts_combine_to_the_checksum_of_the_whole(
        algorithm in algorithm(), bytes in vec(any::<u8>(), 0..3000), cuts in vec(any::<usize>(), 0..5),
    ) {
        let pieces = split(&bytes, &cuts);
        let parts: Vec<_> =
            pieces.iter().map(|piece| (ChecksumHasher::digest(algorithm, piece).digest, piece.len() as u64)).collect();
        let whole = algorithm.allows(ChecksumKind::FullObject).then(|| ChecksumHasher::digest(algorithm, &bytes));
        prop_assert_eq!(combine_full(algorithm, &parts), whole);
    }

    #[test]
    fn long_parts_combine_as_the_library_combines_them(
        crcs in vec((any::<u32>(), any::<u64>()), 2..4),
    ) {
        let parts: Vec<_> = crcs.iter().map(|(crc, length)| (crc.to_be_bytes().to_vec().into(), *length)).collect();
        let expected = crcs.iter().fold(0, |whole, (crc, length)| {
            crc_fast::checksum_combine(crc_fast::CrcAlgorithm::Crc32Iscsi, whole, u64::from(*crc), *length)
        });
        let whole = combine_full(Algorithm::Crc32c, &parts).unwrap();
        prop_assert_eq!(whole.digest, (expected as u32).to_be_bytes().to_vec());
    }
}

/// Known answers of the digits one to nine.
#[test]
fn the_algorithms_give_the_known_checksums() {
    let answers = [
        (Algorithm::Crc32, "y/Q5Jg=="),
        (Algorithm::Crc32c, "4waSgw=="),
        (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
        (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
        (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];
    assert_checksums(b"123456789", &answers);
    assert_eq!(Md5Hasher::digest(b""), 0xd41d8cd98f00b204e9800998ecf8427e_u128.to_be_bytes());
}

/// Answers of AWS's own library. Short and long input takes other paths through XXH3.
#[test]
fn md5_and_the_xxh_functions_give_the_answers_of_aws() {
    let empty = [
        (Algorithm::Md5, "1B2M2Y8AsgTpgAmY7PhCfg=="),
        (Algorithm::Sha512, "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="),
        (Algorithm::Xxhash64, "70bbN1HY6Zk="),
        (Algorithm::Xxhash3, "LQaABTjTlMI="),
        (Algorithm::Xxhash128, "maoG0wFHmNhgAcMkRo1Jfw=="),
    ];
    assert_checksums(b"", &empty);
    let letter = [
        (Algorithm::Xxhash64, "0k7E8amMbls="),
        (Algorithm::Xxhash3, "5sYyth6WTh8="),
        (Algorithm::Xxhash128, "qW+vcFrxaDTmxjK2HpZOHw=="),
    ];
    assert_checksums(b"a", &letter);
    let words = [
        (Algorithm::Md5, "XrY7u+Ae7tCTyyK7j1rNww=="),
        (Algorithm::Xxhash64, "RatnNLIeaWg="),
        (Algorithm::Xxhash3, "1Eex6kDmmIs="),
        (Algorithm::Xxhash128, "340J6T+HSQCpm4d1zBW2xw=="),
    ];
    assert_checksums(b"hello world", &words);
    let bytes: Vec<u8> = (0..=255).collect();
    let long = [
        (Algorithm::Xxhash64, "r8GErXk4o1Q="),
        (Algorithm::Xxhash3, "SESwCeFkNS4="),
        (Algorithm::Xxhash128, "2SqzocsFQqdIRLAJ4WQ1Lg=="),
    ];
    assert_checksums(&bytes.repeat(5), &long);
}

fn assert_checksums(bytes: &[u8], answers: &[(Algorithm, &str)]) {
    for (algorithm, text) in answers {
        let checksum = ChecksumHasher::digest(*algorithm, bytes);
        assert_eq!(checksum.digest.len(), algorithm.digest_length());
        assert_eq!(checksum.text(), *text, "{} of {} bytes", algorithm.name(), bytes.len());
    }
}

#[test]
fn algorithms_and_kinds_are_found_by_all_their_names() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_code(algorithm.code()), Some(algorithm));
        assert_eq!(Algorithm::from_name(&algorithm.name().to_lowercase()), Some(algorithm));
        assert_eq!(Algorithm::from_header(&algorithm.header().to_uppercase()), Some(algorithm));
        assert_eq!(algorithm.header(), format!("x-amz-checksum-{}", algorithm.name().to_lowercase()));
        assert_eq!(algorithm.element(), format!("Checksum{}", algorithm.name()));
        assert_eq!(ChecksumHasher::new(algorithm).algorithm(), algorithm);
        assert!(algorithm.allows(algorithm.default_kind()));
    }
    assert_eq!(Algorithm::ALL.map(Algorithm::code), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "stored in rows");
    for kind in ChecksumKind::ALL {
        assert_eq!(ChecksumKind::from_code(kind.code()), Some(kind));
        assert_eq!(ChecksumKind::from_name(&kind.name().to_lowercase()), Some(kind));
    }
    assert_eq!(Algorithm::from_name("SHA3"), None);
    assert_eq!(Algorithm::from_header("x-amz-checksum-type"), None);
    assert_eq!((Algorithm::from_code(0), ChecksumKind::from_code(0)), (None, None));
}

#[test]
fn each_algorithm_allows_the_kinds_that_aws_documents() {
    let allowed = |algorithm: Algorithm| ChecksumKind::ALL.map(|kind| algorithm.allows(kind));
    let (either, whole, parts) = ([true, true], [true, false], [false, true]);
    let table = [either, either, whole, parts, parts, parts, parts, parts, parts, parts];
    assert_eq!(Algorithm::ALL.map(allowed), table);
    for algorithm in Algorithm::ALL {
        let is_whole = algorithm == Algorithm::Crc64Nvme;
        assert_eq!(algorithm.default_kind() == ChecksumKind::FullObject, is_whole, "{}", algorithm.name());
    }
}

#[test]
fn a_composite_is_the_checksum_of_the_checksums() {
    let digests = [
        ChecksumHasher::digest(Algorithm::Sha1, b"tea").digest,
        ChecksumHasher::digest(Algorithm::Sha1, b"milk").digest,
    ];
    let composite = composite(Algorithm::Sha1, &digests);
    assert_eq!(composite.digest, ChecksumHasher::digest(Algorithm::Sha1, &digests.concat()).digest);
    assert_eq!((composite.kind(), composite.parts), (ChecksumKind::Composite, Some(2)));
    assert!(composite.text().ends_with("=-2"));
    let digests = ["hello ", "world"].map(|part| ChecksumHasher::digest(Algorithm::Xxhash3, part.as_bytes()).digest);
    assert_eq!(super::composite(Algorithm::Xxhash3, &digests).text(), "mhT1UPoUOqw=-2");
}

#[test]
fn malformed_checksums_are_refused() {
    for text in
        ["", "-", "y/Q5Jg", "y/Q5Jg=", "y/Q5", "y/Q5Jg==-", "y/Q5Jg==-0", "y/Q5Jg==-01", "y_Q5Jg==", "y/Q5Jg==-1-1"]
    {
        assert_eq!(Checksum::parse(Algorithm::Crc32, text), None, "{text}");
    }
    assert_eq!(Checksum::parse(Algorithm::Crc64Nvme, "y/Q5Jg=="), None);
    assert_eq!(
        Checksum::parse(Algorithm::Crc32, " y/Q5Jg== ").map(|checksum| checksum.kind()),
        Some(ChecksumKind::FullObject)
    );
    assert_eq!(combine_full(Algorithm::Crc32, &[(Bytes::from_static(b"123"), 1)]), None);
}
