//! ACLs: canned ACLs and grants in headers, and the documents of `?acl`.

use std::collections::HashMap;

use hyper::HeaderMap;
use larder_s3::acl::{AclChoice, GranteeRef, ShownAcl};
use larder_s3_rules::acl::{RawGrantee, parse_grantees};
use larder_s3_rules::{Grant, Grantee, Permission};

use super::listing_document;
use crate::errors::{Code, S3Error};
use crate::xml::{XmlReader, XmlWriter};

/// The XML namespace of a grantee's type.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// The header with a canned ACL.
pub(crate) const CANNED: &str = "x-amz-acl";

/// An ACL document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AclDocument {
    /// Canonical id of the owner, if given.
    pub(crate) owner: Option<String>,
    /// The grants.
    pub(crate) grants: Vec<(Permission, GranteeRef)>,
}

/// Decodes the ACL in headers.
///
/// # Errors
/// 400 `InvalidRequest` for a canned ACL together with grants, `InvalidArgument` for invalid grants.
pub(crate) fn acl_from_headers(headers: &HeaderMap) -> Result<AclChoice, S3Error> {
    let canned = listing_document::header(headers, CANNED).filter(|name| !name.is_empty());
    let mut grants = Vec::new();
    for (name, permission) in Permission::headers() {
        for value in headers.get_all(name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            let grantees = parse_grantees(&value).map_err(|bad| S3Error::argument(name, &*value, bad.message))?;
            grants.extend(grantees.into_iter().map(|grantee| (permission, named(grantee))));
        }
    }
    match (canned, grants.is_empty()) {
        (Some(_), false) => Err(S3Error::invalid("Specifying both Canned ACLs and Header Grants is not allowed")),
        (Some(name), true) => Ok(AclChoice::Canned(name.to_owned())),
        (None, false) => Ok(AclChoice::Grants(grants)),
        (None, true) => Ok(AclChoice::Private),
    }
}

/// Whether headers carry an ACL.
pub(crate) fn in_headers(headers: &HeaderMap) -> bool {
    headers.contains_key(CANNED) || Permission::headers().any(|(name, _)| headers.contains_key(name))
}

/// Parses a document.
///
/// # Errors
/// 400 `MalformedACLError` for another structure, `MalformedXML` for invalid XML.
pub(crate) fn read(document: &[u8]) -> Result<AclDocument, S3Error> {
    let mut xml = XmlReader::open(document, "AccessControlPolicy")?;
    let (mut owner, mut grants) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Owner" => owner = owner_id(&mut xml)?,
            "AccessControlList" => grants = Some(list(&mut xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    Ok(AclDocument { owner, grants: grants.ok_or(Code::MalformedACLError)? })
}

/// Writes a document; `names` maps canonical ids to display names.
pub(crate) fn write(shown: &ShownAcl, names: &HashMap<String, String>) -> XmlWriter {
    let mut xml = XmlWriter::new("AccessControlPolicy");
    xml.element("Owner", |xml| user(xml, &shown.owner, names));
    xml.element("AccessControlList", |xml| {
        let is_of_user = |grant: &&Grant| matches!(grant.grantee, Grantee::User(_));
        let (users, groups): (Vec<_>, Vec<_>) = shown.acl.grants.iter().partition(is_of_user);
        for grant in groups.into_iter().chain(users) {
            xml.element("Grant", |xml| write_grant(xml, grant, names));
        }
    });
    xml
}

/// The canonical ids of an ACL and of its owner.
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

fn owner_id(xml: &mut XmlReader<'_>) -> Result<Option<String>, S3Error> {
    let mut id = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "ID" => id = Some(xml.text()?),
            // The id decides.
            "DisplayName" => drop(xml.text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(id)
}

fn list(xml: &mut XmlReader<'_>) -> Result<Vec<(Permission, GranteeRef)>, S3Error> {
    let mut grants = Vec::new();
    while let Some(name) = xml.next_child()? {
        match name {
            "Grant" => grants.push(grant(xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(grants)
}

fn grant(xml: &mut XmlReader<'_>) -> Result<(Permission, GranteeRef), S3Error> {
    let (mut permission, mut to) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Permission" => permission = Permission::named(xml.text()?.trim()),
            "Grantee" => to = grantee(xml)?,
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    permission.zip(to).ok_or_else(|| Code::MalformedACLError.into())
}

/// Parses a grantee: one name, of the kind that its `xsi:type` says, if it says one. Of two names one would win unseen.
fn grantee(xml: &mut XmlReader<'_>) -> Result<Option<GranteeRef>, S3Error> {
    let (mut kind, mut reference) = (xml.attribute("type"), None);
    while let Some(name) = xml.next_child()? {
        let (of_kind, named) = match name {
            "ID" => ("CanonicalUser", GranteeRef::Id(xml.text()?)),
            "EmailAddress" => ("AmazonCustomerByEmail", GranteeRef::Email(xml.text()?)),
            "URI" => ("Group", GranteeRef::Group(xml.text()?)),
            // Some clients send the type as an element.
            "Type" | "type" => {
                kind = Some(xml.text()?);
                continue;
            }
            "DisplayName" => {
                xml.text()?;
                continue;
            }
            _ => return Err(S3Error::element_not_offered(name)),
        };
        if reference.replace((of_kind, named)).is_some() {
            return Err(Code::MalformedACLError.into());
        }
    }
    match (reference, kind) {
        (Some((of_kind, _)), Some(kind)) if of_kind != kind.trim() => Err(Code::MalformedACLError.into()),
        (reference, _) => Ok(reference.map(|(_, named)| named)),
    }
}

fn write_grant(xml: &mut XmlWriter, grant: &Grant, names: &HashMap<String, String>) {
    let kind = if matches!(grant.grantee, Grantee::User(_)) { "CanonicalUser" } else { "Group" };
    xml.element_with("Grantee", &[("xmlns:xsi", SCHEMA_INSTANCE), ("xsi:type", kind)], |xml| match &grant.grantee {
        Grantee::User(id) => user(xml, id, names),
        group => {
            xml.text("URI", group.uri().unwrap_or_default());
        }
    });
    xml.text("Permission", grant.permission.name());
}

fn user(xml: &mut XmlWriter, id: &str, names: &HashMap<String, String>) {
    xml.text("ID", id).text("DisplayName", names.get(id).map_or(id, String::as_str));
}

#[cfg(test)]
mod tests {
    use larder_s3_rules::Acl;
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
    fn documents_are_written_and_read_back() {
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
    fn invalid_documents_are_refused() {
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
    fn headers_carry_a_canned_acl_or_grants() {
        let parse = |name: &'static str, value: &str| {
            let headers: HeaderMap =
                [(hyper::header::HeaderName::from_static(name), value.parse().unwrap())].into_iter().collect();
            super::acl_from_headers(&headers)
        };
        assert!(matches!(super::acl_from_headers(&HeaderMap::new()), Ok(AclChoice::Private)));
        assert!(matches!(parse("x-amz-acl", "public-read"), Ok(AclChoice::Canned(name)) if name == "public-read"));
        let Ok(AclChoice::Grants(grants)) = parse("x-amz-grant-write-acp", "id=1, emailAddress=\"a@b\"") else {
            panic!()
        };
        let email = GranteeRef::Email("a@b".into());
        assert_eq!(grants, [(Permission::WriteAcp, GranteeRef::Id("1".into())), (Permission::WriteAcp, email)]);
        assert_eq!(parse("x-amz-grant-read", "nobody").unwrap_err().code.name(), "InvalidArgument");
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
