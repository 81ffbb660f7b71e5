//! A bucket with very many keys, listed whole from one connection.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bucket::{Job, Subject};
use super::driver::Driver;
use super::xml;
use crate::limits::{LOAD_WAIT_MAX, PAGES_MAX};

/// What a listing was.
#[derive(Debug)]
pub(crate) struct Listed {
    /// How long the loading took.
    pub(crate) loaded_in: Duration,
    /// How long the listing took, first request to last answer.
    pub(crate) listed_in: Duration,
    /// Its pages.
    pub(crate) pages: u64,
}

/// Writes `keys` empty objects, then lists them all.
///
/// # Errors
///
/// When the server refuses, or the listing has more or fewer keys.
pub(crate) async fn run(subject: &Subject, keys: u64) -> Result<Listed> {
    let loaded_in = subject.work(Job::Load(0), keys).await?;
    let mut driver = subject.connect(0).await?;
    let started = Instant::now();
    let listing = list_all(&mut driver);
    let (found, pages) = tokio::time::timeout(LOAD_WAIT_MAX, listing).await.context("the listing took too long")??;
    let listed_in = started.elapsed();
    if found != keys {
        bail!("a bucket with {keys} keys listed {found}");
    }
    Ok(Listed { loaded_in, listed_in, pages })
}

/// All pages; the keys and the pages there were.
async fn list_all(driver: &mut Driver) -> Result<(u64, u64)> {
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
    use crate::s3::bucket::Job;

    #[tokio::test]
    async fn all_pages_are_read_and_counted() {
        let subject = crate::s3::fake::start().await;
        subject.make().await.unwrap();
        let listed = run(&subject, 2_500).await.unwrap();
        assert_eq!(listed.pages, 3);
        subject.work(Job::Make(1), 1).await.unwrap();
        assert!(run(&subject, 2_500).await.unwrap_err().to_string().ends_with("2500 keys listed 2501"));
        subject.remove().await.unwrap();
    }
}
