//! System headers of S3 objects.

use larder_rows::codec::coded;

coded! {
    /// A header that is stored with an object and returned with it.
    /// The name is that on the wire, in lower case.
    pub enum SystemHeader {
        /// `Content-Type`
        ContentType = 1, "content-type";
        /// `Cache-Control`
        CacheControl = 2, "cache-control";
        /// `Content-Disposition`
        ContentDisposition = 3, "content-disposition";
        /// `Content-Encoding`, without `aws-chunked`
        ContentEncoding = 4, "content-encoding";
        /// `Content-Language`
        ContentLanguage = 5, "content-language";
        /// `Expires`
        Expires = 6, "expires";
        /// `x-amz-website-redirect-location`
        WebsiteRedirect = 7, "x-amz-website-redirect-location";
        /// `x-amz-storage-class`, when it is not `STANDARD`
        StorageClass = 8, "x-amz-storage-class";
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
