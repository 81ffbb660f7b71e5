//! Pages of the parts of an upload.

use crate::objects::part::Part;

/// One page of the parts of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPage {
    /// The parts, by number.
    pub parts: Vec<Part>,
    /// Whether there are further parts.
    pub truncated: bool,
    /// Number of the last part of the page, even when it is the last of all; 0 for an empty page.
    pub next_marker: u16,
}

/// The page of at most `max` parts. `parts` are the first `max` + 1 after the client's marker, or all if there are fewer.
#[must_use]
pub fn parts_page(mut parts: Vec<Part>, max: usize) -> PartsPage {
    // A page of no parts ends the listing: the next page would have no marker.
    let truncated = parts.len() > max && max > 0;
    parts.truncate(max);
    let next_marker = parts.last().map_or(0, |part| part.number);
    PartsPage { parts, truncated, next_marker }
}

#[cfg(test)]
mod tests {
    use crate::Timestamp;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    fn part(number: u16) -> Part {
        Part { number, md5: [0; 16], length: 1, blob: None, modified: Timestamp(1), checksum: None }
    }

    /// The first `max` + 1 parts after the marker, of an upload with parts of these numbers.
    fn read(numbers: &[u16], marker: u16, max: usize) -> Vec<Part> {
        numbers.iter().filter(|number| **number > marker).take(max + 1).map(|number| part(*number)).collect()
    }

    proptest! {
        #[test]
        fn a_page_is_a_slice_of_the_parts(numbers in btree_set(1..60_u16, 0..30), marker in 0..70_u16, max in 0..40_usize) {
            let numbers: Vec<_> = numbers.into_iter().collect();
            let page = parts_page(read(&numbers, marker, max), max);
            let later: Vec<_> = numbers.into_iter().filter(|number| *number > marker).collect();
            let listed: Vec<_> = page.parts.iter().map(|part| part.number).collect();
            prop_assert_eq!(&listed[..], &later[..later.len().min(max)]);
            prop_assert_eq!(page.truncated, max > 0 && later.len() > max);
            prop_assert_eq!(page.next_marker, listed.last().copied().unwrap_or(0));
        }

        #[test]
        fn all_pages_together_are_all_parts(numbers in btree_set(1..60_u16, 0..30), max in 1..9_usize) {
            let numbers: Vec<_> = numbers.into_iter().collect();
            let (mut listed, mut marker) = (Vec::new(), 0);
            loop {
                let page = parts_page(read(&numbers, marker, max), max);
                listed.extend(page.parts.iter().map(|part| part.number));
                marker = page.next_marker;
                if !page.truncated {
                    break;
                }
            }
            prop_assert_eq!(listed, numbers);
        }
    }
}
