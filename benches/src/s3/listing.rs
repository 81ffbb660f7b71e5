//! Lists all keys of a very large bucket over one connection.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bucket::{BucketJob, S3Subject};
use super::driver::S3Driver;
use super::xml;
use crate::limits::{LOAD_WAIT_MAX, PAGES_MAX};

/// The result of a listing.
#[derive(Debug)]
pub(crate) struct ListingResult {
    /// The time of the load.
    pub(crate) loaded_in: Duration,
    /// The time of the listing, from the first request to the last answer.
    pub(crate) listed_in: Duration,
    /// The number of its pages.
    pub(crate) pages: u64,
}

/// Writes `keys` empty objects, then lists them all.
///
/// # Errors
///
/// When the server refuses, or the listing has more or fewer keys.
pub(crate) async fn run(subject: &S3Subject, keys: u64) -> Result<ListingResult> {
    let loaded_in = subject.work(BucketJob::Load(0), keys).await?;
    let mut driver = subject.connect(0).await?;
    let started = Instant::now();
    let listing = list_all(&mut driver);
    let (found, pages) = tokio::time::timeout(LOAD_WAIT_MAX, listing).await.context("the listing took too long")??;
    let listed_in = started.elapsed();
    if found != keys {
        bail!("a bucket with {keys} keys listed {found}");
    }
    Ok(ListingResult { loaded_in, listed_in, pages })
}

/// Reads all pages; returns the numbers of keys and of pages.
async fn list_all(driver: &mut S3Driver) -> Result<(u64, u64)> {
    let (mut keys, mut token) = (0, None);
    for page in 1..=PAGES_MAX {
        let reply = driver.list(token.as_deref(), "").await?;
        if reply.status != 200 {
            return Err(driver.refusal("listing a bucket", reply));
        }
        keys += xml::count(driver.page(), "Key");
        if xml::text(driver.page(), "IsTruncated").as_deref() != Some("true") {
            return Ok((keys, page));
        }
        token = xml::text(driver.page(), "NextContinuationToken");
        if token.is_none() {
            bail!("page {page} is truncated and has no token");
        }
    }
    bail!("a listing of more than {PAGES_MAX} pages")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::bucket::BucketJob;

    #[tokio::test]
    async fn all_pages_are_read_and_counted() {
        let subject = crate::s3::fake::start().await;
        subject.make().await.unwrap();
        let listed = run(&subject, 2_500).await.unwrap();
        assert_eq!(listed.pages, 3);
        subject.work(BucketJob::Make(1), 1).await.unwrap();
        assert!(run(&subject, 2_500).await.unwrap_err().to_string().ends_with("2500 keys listed 2501"));
        subject.remove().await.unwrap();
    }
}
