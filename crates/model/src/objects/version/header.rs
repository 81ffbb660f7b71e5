//! System headers of S3 objects.

/// A header that is stored with an object and returned with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SystemHeader {
    /// `Content-Type`
    ContentType = 1,
    /// `Cache-Control`
    CacheControl = 2,
    /// `Content-Disposition`
    ContentDisposition = 3,
    /// `Content-Encoding`, without `aws-chunked`
    ContentEncoding = 4,
    /// `Content-Language`
    ContentLanguage = 5,
    /// `Expires`
    Expires = 6,
    /// `x-amz-website-redirect-location`
    WebsiteRedirect = 7,
    /// `x-amz-storage-class`, when it is not `STANDARD`
    StorageClass = 8,
}

impl SystemHeader {
    /// Every header.
    pub const ALL: [Self; 8] = [
        Self::ContentType,
        Self::CacheControl,
        Self::ContentDisposition,
        Self::ContentEncoding,
        Self::ContentLanguage,
        Self::Expires,
        Self::WebsiteRedirect,
        Self::StorageClass,
    ];

    /// Its name on the wire, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ContentType => "content-type",
            Self::CacheControl => "cache-control",
            Self::ContentDisposition => "content-disposition",
            Self::ContentEncoding => "content-encoding",
            Self::ContentLanguage => "content-language",
            Self::Expires => "expires",
            Self::WebsiteRedirect => "x-amz-website-redirect-location",
            Self::StorageClass => "x-amz-storage-class",
        }
    }

    /// The byte in stored rows.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The header with this byte.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|header| header.code() == code)
    }

    /// The header with this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|header| header.name().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_by_codes_and_names() {
        for header in SystemHeader::ALL {
            assert_eq!(SystemHeader::from_code(header.code()), Some(header));
            assert_eq!(SystemHeader::from_name(&header.name().to_uppercase()), Some(header));
            assert_eq!(header.name(), header.name().to_lowercase());
        }
        assert_eq!(SystemHeader::from_code(0), None);
        assert_eq!(SystemHeader::from_code(9), None);
        assert_eq!(SystemHeader::from_name("etag"), None);
    }
}
