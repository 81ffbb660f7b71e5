//! The places of an outbox: how many notices it holds, and in how many bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most notices of a gateway that are not delivered.
pub(super) const PLACES_MAX: usize = 10_000;
/// Most bytes of their names, addresses and content types.
pub(super) const NOTICES_BYTES_MAX: usize = 16 << 20;

/// Free and taken places. The least free number is taken first, so few numbers are ever used.
#[derive(Debug, Default)]
pub(super) struct OutboxPlaces {
    freed: BinaryHeap<Reverse<u32>>,
    /// The least number that was never taken.
    next: u32,
    bytes: usize,
}

impl OutboxPlaces {
    /// Places that are taken.
    pub(super) fn taken(&self) -> usize {
        self.next as usize - self.freed.len()
    }

    /// Takes a place for a notice of each size; `None` where there is no room for all of them.
    pub(super) fn take(&mut self, sizes: &[usize]) -> Option<Vec<u32>> {
        let bytes: usize = sizes.iter().sum();
        // Bound: beyond it writes are refused, so nothing is dropped [invariant 139].
        if self.taken() + sizes.len() > PLACES_MAX || self.bytes + bytes > NOTICES_BYTES_MAX {
            return None;
        }
        self.bytes += bytes;
        Some(sizes.iter().map(|_| self.take_one()).collect())
    }

    fn take_one(&mut self) -> u32 {
        if let Some(Reverse(place)) = self.freed.pop() {
            return place;
        }
        self.next += 1;
        self.next - 1
    }

    /// Frees a place with a notice of this size.
    pub(super) fn free(&mut self, place: u32, size: usize) {
        self.freed.push(Reverse(place));
        self.bytes -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_outbox_takes_nothing_and_the_least_free_place_is_taken_again() {
        let mut places = OutboxPlaces::default();
        assert_eq!(places.take(&[1, 1, 1]), Some(vec![0, 1, 2]));
        places.free(2, 1);
        places.free(0, 1);
        assert_eq!((places.take(&[1]), places.taken()), (Some(vec![0]), 2));
        assert_eq!(places.take(&vec![0; PLACES_MAX - 1]), None, "all or none");
        assert_eq!(places.take(&vec![0; PLACES_MAX - 2]).map(|taken| taken.len()), Some(PLACES_MAX - 2));
        assert_eq!(places.take(&[0]), None);
        let mut places = OutboxPlaces::default();
        assert_eq!(places.take(&[NOTICES_BYTES_MAX]), Some(vec![0]));
        assert_eq!(places.take(&[1]), None);
        places.free(0, NOTICES_BYTES_MAX);
        assert_eq!(places.take(&[1]), Some(vec![0]));
    }
}
