//! Display names of canonical ids.

use std::collections::{HashMap, HashSet};

use larder_gateway::objects::Objects;

use crate::xml::XmlWriter;

/// Display names by canonical id, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct DisplayNames(pub(crate) HashMap<String, String>);

impl DisplayNames {
    /// Looks up the names of these ids.
    pub(crate) async fn of(objects: &Objects, ids: HashSet<&str>) -> Self {
        let mut names = HashMap::with_capacity(ids.len());
        for id in ids {
            names.insert(id.to_owned(), objects.users.display_name(id).await);
        }
        Self(names)
    }

    /// Writes a user as `ID` and `DisplayName` within this element.
    pub(crate) fn write(&self, xml: &mut XmlWriter, element: &str, id: &str) {
        xml.element(element, |xml| {
            xml.text("ID", id).text("DisplayName", self.0.get(id).map_or(id, String::as_str));
        });
    }
}

#[cfg(test)]
impl DisplayNames {
    /// Fixed names.
    pub(crate) fn fixed(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect())
    }
}
