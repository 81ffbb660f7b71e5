//! The links of an object: which of them a step of a link walk or a link phase follows.

use std::collections::BTreeSet;

use bytes::Bytes;
use larder_rows::content::Link;

use crate::rules::causality::Sibling;

/// Chooses links by bucket and tag; `None` takes any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkFilter {
    /// The bucket of the target.
    pub bucket: Option<Bytes>,
    /// The tag of the link.
    pub tag: Option<Bytes>,
}

/// One step of a link walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStep {
    /// The links that it follows.
    pub filter: LinkFilter,
    /// Whether the answer shows the objects that it reaches.
    pub keep: bool,
}

impl LinkFilter {
    /// Whether it takes a link.
    #[must_use]
    pub fn takes(&self, link: &Link) -> bool {
        let same = |name: &Option<Bytes>, given: &Bytes| name.as_ref().is_none_or(|name| name == given);
        same(&self.bucket, &link.bucket) && same(&self.tag, &link.tag)
    }

    /// The links of all siblings that it takes: each once, in the order of bucket, key and tag.
    #[must_use]
    pub fn matching_links<'a>(&self, siblings: &'a [Sibling]) -> BTreeSet<&'a Link> {
        siblings.iter().flat_map(|sibling| &sibling.content.links).filter(|link| self.takes(link)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::causality::{Dot, DotFlags, Slot};
    use larder_rows::content::KvContent;
    use larder_rows::{ActorId, Timestamp};

    fn link(bucket: &'static str, key: &'static str, tag: &'static str) -> Link {
        Link { bucket: bucket.into(), key: key.into(), tag: tag.into() }
    }

    fn sibling(links: Vec<Link>) -> Sibling {
        let slot = Slot { actor: ActorId(1), birth: Timestamp(1) };
        let dot = Dot { slot, clock: Timestamp(1), flags: DotFlags::default() };
        Sibling::from_write(dot, KvContent { links, ..KvContent::default() })
    }

    #[test]
    fn links_of_siblings_are_one_sorted_set() {
        let siblings = [
            sibling(vec![link("b", "z", "t"), link("a", "k", "t")]),
            sibling(vec![link("a", "k", "t"), link("b", "y", "u")]),
        ];
        let taken = |bucket: Option<&'static str>, tag: Option<&'static str>| {
            let filter = LinkFilter { bucket: bucket.map(Bytes::from), tag: tag.map(Bytes::from) };
            filter.matching_links(&siblings).into_iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(taken(None, None), [link("a", "k", "t"), link("b", "y", "u"), link("b", "z", "t")]);
        assert_eq!(taken(Some("b"), None), [link("b", "y", "u"), link("b", "z", "t")]);
        assert_eq!(taken(Some("b"), Some("t")), [link("b", "z", "t")]);
        assert_eq!(taken(Some("_"), None), []);
    }
}
