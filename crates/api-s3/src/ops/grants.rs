//! Who may: the canned lists and the grants of headers, and the documents of `?acl`.

use std::collections::HashMap;

use hyper::HeaderMap;
use larder_gateway::objects::acl::{AclChoice, GranteeRef, ShownAcl};
use larder_model::objects::acl::{RawGrantee, parse_grantees};
use larder_model::objects::{Grant, Grantee, Permission};

use super::params;
use crate::errors::{Code, Fault};
use crate::xml::{Reader, Xml};

/// The namespace of a grantee's type.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// The header with the name of a canned list.
pub(crate) const CANNED: &str = "x-amz-acl";

/// A document: who it says the owner is, and the grants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AclDocument {
    /// Canonical id of the owner, if it is there.
    pub(crate) owner: Option<String>,
    /// The grants.
    pub(crate) grants: Vec<(Permission, GranteeRef)>,
}

/// The grants that headers ask for.
///
/// # Errors
/// 400 `InvalidRequest` for a canned list and grants together, `InvalidArgument` for grants that cannot be read.
pub(crate) fn of(headers: &HeaderMap) -> Result<AclChoice, Fault> {
    let canned = params::header(headers, CANNED).filter(|name| !name.is_empty());
    let mut grants = Vec::new();
    for (name, permission) in Permission::headers() {
        for value in headers.get_all(name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            let grantees = parse_grantees(&value).map_err(|bad| Fault::argument(name, &*value, bad.message))?;
            grants.extend(grantees.into_iter().map(|grantee| (permission, named(grantee))));
        }
    }
    match (canned, grants.is_empty()) {
        (Some(_), false) => Err(Fault::invalid("Specifying both Canned ACLs and Header Grants is not allowed")),
        (Some(name), true) => Ok(AclChoice::Canned(name.to_owned())),
        (None, false) => Ok(AclChoice::Grants(grants)),
        (None, true) => Ok(AclChoice::Private),
    }
}

/// Whether headers ask for any grants: then the body does not count.
pub(crate) fn in_headers(headers: &HeaderMap) -> bool {
    headers.contains_key(CANNED) || Permission::headers().any(|(name, _)| headers.contains_key(name))
}

/// Reads a document.
///
/// # Errors
/// 400 `MalformedACLError` when it has another structure, `MalformedXML` when it is no XML.
pub(crate) fn read(document: &[u8]) -> Result<AclDocument, Fault> {
    let mut xml = Reader::open(document, "AccessControlPolicy")?;
    let (mut owner, mut grants) = (None, None);
    while let Some(name) = xml.child()? {
        match name {
            "Owner" => owner = owner_id(&mut xml)?,
            "AccessControlList" => grants = Some(list(&mut xml)?),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    Ok(AclDocument { owner, grants: grants.ok_or(Code::MalformedACLError)? })
}

/// Writes a document; `names` has the names to show for canonical ids.
pub(crate) fn write(shown: &ShownAcl, names: &HashMap<String, String>) -> Xml {
    let mut xml = Xml::new("AccessControlPolicy");
    xml.within("Owner", |xml| user(xml, &shown.owner, names));
    xml.within("AccessControlList", |xml| {
        let is_of_user = |grant: &&Grant| matches!(grant.grantee, Grantee::User(_));
        let (users, groups): (Vec<_>, Vec<_>) = shown.acl.grants.iter().partition(is_of_user);
        for grant in groups.into_iter().chain(users) {
            xml.within("Grant", |xml| write_grant(xml, grant, names));
        }
    });
    xml
}

/// The canonical ids of a list of grants and of its owner.
pub(crate) fn ids(shown: &ShownAcl) -> impl Iterator<Item = &str> {
    let users = shown.acl.grants.iter().filter_map(|grant| match &grant.grantee {
        Grantee::User(id) => Some(id.as_str()),
        _ => None,
    });
    std::iter::once(shown.owner.as_str()).chain(users)
}

fn named(grantee: RawGrantee) -> GranteeRef {
    match grantee {
        RawGrantee::Id(id) => GranteeRef::Id(id),
        RawGrantee::Email(address) => GranteeRef::Email(address),
        RawGrantee::Uri(uri) => GranteeRef::Group(uri),
    }
}

fn owner_id(xml: &mut Reader<'_>) -> Result<Option<String>, Fault> {
    let mut id = None;
    while let Some(name) = xml.child()? {
        match name {
            "ID" => id = Some(xml.text()?),
            _ => xml.skip()?,
        }
    }
    Ok(id)
}

fn list(xml: &mut Reader<'_>) -> Result<Vec<(Permission, GranteeRef)>, Fault> {
    let mut grants = Vec::new();
    while let Some(name) = xml.child()? {
        match name {
            "Grant" => grants.push(grant(xml)?),
            _ => xml.skip()?,
        }
    }
    Ok(grants)
}

fn grant(xml: &mut Reader<'_>) -> Result<(Permission, GranteeRef), Fault> {
    let (mut permission, mut to) = (None, None);
    while let Some(name) = xml.child()? {
        match name {
            "Permission" => permission = Permission::named(xml.text()?.trim()),
            "Grantee" => to = grantee(xml)?,
            _ => xml.skip()?,
        }
    }
    permission.zip(to).ok_or_else(|| Code::MalformedACLError.into())
}

/// Somebody: what is in the element decides, whatever its type says.
fn grantee(xml: &mut Reader<'_>) -> Result<Option<GranteeRef>, Fault> {
    let mut found = None;
    while let Some(name) = xml.child()? {
        match name {
            "ID" => found = Some(GranteeRef::Id(xml.text()?)),
            "EmailAddress" => found = Some(GranteeRef::Email(xml.text()?)),
            "URI" => found = Some(GranteeRef::Group(xml.text()?)),
            _ => xml.skip()?,
        }
    }
    Ok(found)
}

fn write_grant(xml: &mut Xml, grant: &Grant, names: &HashMap<String, String>) {
    let kind = if matches!(grant.grantee, Grantee::User(_)) { "CanonicalUser" } else { "Group" };
    xml.within_of("Grantee", &[("xmlns:xsi", SCHEMA_INSTANCE), ("xsi:type", kind)], |xml| match &grant.grantee {
        Grantee::User(id) => user(xml, id, names),
        group => {
            xml.text("URI", group.uri().unwrap_or_default());
        }
    });
    xml.text("Permission", grant.permission.name());
}

fn user(xml: &mut Xml, id: &str, names: &HashMap<String, String>) {
    xml.text("ID", id).text("DisplayName", names.get(id).map_or(id, String::as_str));
}

#[cfg(test)]
mod tests {
    use larder_model::objects::Acl;
    use proptest::prelude::*;

    use super::*;

    fn shown() -> ShownAcl {
        let grants = vec![
            Grant { grantee: Grantee::User("o".into()), permission: Permission::FullControl },
            Grant { grantee: Grantee::AllUsers, permission: Permission::Read },
        ];
        ShownAcl { owner: "o".into(), acl: Acl { grants } }
    }

    #[test]
    fn documents_have_their_shape_and_come_back() {
        let names = HashMap::from([("o".to_owned(), "tea".to_owned())]);
        let document = write(&shown(), &names).finish();
        let text = std::str::from_utf8(&document).unwrap();
        let expected = "<AccessControlPolicy xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Owner>\
            <ID>o</ID><DisplayName>tea\
            </DisplayName></Owner><AccessControlList>\
            <Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"Group\"><URI>\
            http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>\
            <Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
            xsi:type=\"CanonicalUser\"><ID>o</ID><DisplayName>tea</DisplayName></Grantee>\
            <Permission>FULL_CONTROL</Permission></Grant>\
            </AccessControlList></AccessControlPolicy>";
        assert!(text.ends_with(expected), "{text}");
        let read = read(&document).unwrap();
        assert_eq!(read.owner.as_deref(), Some("o"));
        let group = GranteeRef::Group("http://acs.amazonaws.com/groups/global/AllUsers".into());
        let expected = [(Permission::Read, group), (Permission::FullControl, GranteeRef::Id("o".into()))];
        assert_eq!(read.grants, expected);
        assert_eq!(ids(&shown()).collect::<Vec<_>>(), ["o", "o"]);
    }

    #[test]
    fn other_documents_are_refused() {
        for (document, code) in [
            ("", "MalformedXML"),
            ("<A/>", "MalformedXML"),
            ("<AccessControlPolicy/>", "MalformedACLError"),
            (
                "<AccessControlPolicy><AccessControlList><Grant/></AccessControlList></AccessControlPolicy>",
                "MalformedACLError",
            ),
        ] {
            assert_eq!(read(document.as_bytes()).unwrap_err().code.name(), code, "{document}");
        }
        let none = read(b"<AccessControlPolicy><AccessControlList/></AccessControlPolicy>").unwrap();
        assert_eq!(none, AclDocument { owner: None, grants: vec![] });
    }

    #[test]
    fn headers_choose() {
        let of = |name: &'static str, value: &str| {
            let headers: HeaderMap =
                [(hyper::header::HeaderName::from_static(name), value.parse().unwrap())].into_iter().collect();
            super::of(&headers)
        };
        assert!(matches!(super::of(&HeaderMap::new()), Ok(AclChoice::Private)));
        assert!(matches!(of("x-amz-acl", "public-read"), Ok(AclChoice::Canned(name)) if name == "public-read"));
        let Ok(AclChoice::Grants(grants)) = of("x-amz-grant-write-acp", "id=1, emailAddress=\"a@b\"") else { panic!() };
        let email = GranteeRef::Email("a@b".into());
        assert_eq!(grants, [(Permission::WriteAcp, GranteeRef::Id("1".into())), (Permission::WriteAcp, email)]);
        assert_eq!(of("x-amz-grant-read", "nobody").unwrap_err().code.name(), "InvalidArgument");
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            document: Vec<u8>,
            text in "(<|>|/|Grant|Grantee|AccessControlPolicy|AccessControlList| )*",
        ) {
            let _ = (read(&document), read(text.as_bytes()));
        }
    }
}
