//! Names to show for canonical ids.

use std::collections::{HashMap, HashSet};

use larder_gateway::objects::Objects;

use crate::xml::Xml;

/// Display names by canonical id; each is looked up once.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) HashMap<String, String>);

impl Names {
    /// The names of these ids.
    pub(crate) async fn of(objects: &Objects, ids: HashSet<&str>) -> Self {
        let mut names = HashMap::with_capacity(ids.len());
        for id in ids {
            names.insert(id.to_owned(), objects.display_name(id).await);
        }
        Self(names)
    }

    /// Writes somebody: `ID` and `DisplayName`, within an element of this name.
    pub(crate) fn write(&self, xml: &mut Xml, element: &str, id: &str) {
        xml.within(element, |xml| {
            xml.text("ID", id).text("DisplayName", self.0.get(id).map_or(id, String::as_str));
        });
    }
}

#[cfg(test)]
impl Names {
    /// These names.
    pub(crate) fn fixed(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect())
    }
}
