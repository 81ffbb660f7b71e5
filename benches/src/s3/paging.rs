//! List Parts: a page of a large upload must cost as much as a page of a small one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bucket::{BucketJob, S3Subject};
use super::driver::S3Driver;
use crate::keys::BenchRandom;
use crate::limits::LOAD_WAIT_MAX;
use crate::report::{latency, thousands};
use crate::turns::median;

/// Parts of a page.
pub(crate) const PAGE_PARTS: u64 = 10;

/// The size of each part, below S3's minimum: these uploads are never completed.
const PART_BYTES: usize = 16;

/// The pages of the warm-up.
const WARM_UP_PAGES: u64 = 50;

/// An upload and the latencies of its pages.
#[derive(Debug)]
pub(crate) struct PagedUpload {
    /// The number of its parts.
    pub(crate) parts: u64,
    key: String,
    upload: String,
    sent_in: Duration,
    micros: Vec<f64>,
}

impl PagedUpload {
    /// The median of a page, in microseconds.
    pub(crate) fn median_us(&self) -> Option<f64> {
        median(&self.micros)
    }

    /// One line for the report.
    pub(crate) fn describe(&self) -> String {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        let slow = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(0.0);
        let (middle, slow) = (latency(self.median_us().unwrap_or(0.0) as u64), latency(slow as u64));
        format!("{} parts {middle} (p99 {slow})", thousands(self.parts as f64))
    }

    /// The time and the rate of its parts.
    pub(crate) fn loading(&self) -> String {
        let seconds = self.sent_in.as_secs_f64();
        format!("{seconds:.1} s, {}/s", thousands(self.parts as f64 / seconds.max(0.001)))
    }
}

/// Makes uploads of these numbers of parts and reads `pages` pages of each, in turns, on one connection.
///
/// # Errors
///
/// When the server refuses something, or a page is not full.
pub(crate) async fn run(subject: &S3Subject, parts: &[u64], pages: u64) -> Result<Vec<PagedUpload>> {
    let mut driver = subject.connect(0).await?;
    let mut uploads = Vec::new();
    for count in parts {
        uploads.push(make(subject, &mut driver, *count).await?);
    }
    let reading = async {
        for page in 0..WARM_UP_PAGES + pages {
            for upload in &mut uploads {
                let micros = read_page(&mut driver, upload).await?;
                if page >= WARM_UP_PAGES {
                    upload.micros.push(micros);
                }
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LOAD_WAIT_MAX, reading).await.context("reading pages took too long")??;
    for upload in &uploads {
        driver.abort(&upload.key, &upload.upload).await?;
    }
    Ok(uploads)
}

async fn make(subject: &S3Subject, driver: &mut S3Driver, parts: u64) -> Result<PagedUpload> {
    let key = format!("parts-{parts}");
    let upload = driver.initiate(&key).await?;
    let job = BucketJob::Part(Arc::new((key.clone(), upload.clone())), PART_BYTES);
    let sent_in = subject.work(job, parts).await?;
    Ok(PagedUpload { parts, key, upload, sent_in, micros: Vec::new() })
}

/// Reads a full page after a random part; returns its latency in microseconds.
async fn read_page(driver: &mut S3Driver, upload: &PagedUpload) -> Result<f64> {
    let after = random_marker(&mut driver.random, upload.parts);
    let started = Instant::now();
    let found = driver.list_parts(&upload.key, &upload.upload, PAGE_PARTS, after).await?;
    let micros = started.elapsed().as_secs_f64() * 1e6;
    if found != PAGE_PARTS {
        bail!("a page after part {after} of {} has {found} parts", upload.parts);
    }
    Ok(micros)
}

/// A random marker before a full page.
fn random_marker(random: &mut BenchRandom, parts: u64) -> u64 {
    random.below(parts.saturating_sub(PAGE_PARTS) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_page_follows_every_marker() {
        let mut random = BenchRandom::new(1);
        assert!((0..1_000).all(|_| random_marker(&mut random, 100) + PAGE_PARTS <= 100));
        assert_eq!(random_marker(&mut random, PAGE_PARTS), 0);
    }

    #[tokio::test]
    async fn pages_are_full_and_uploads_are_aborted() {
        let subject = super::super::fake::start().await;
        subject.make().await.unwrap();
        let paged = run(&subject, &[10, 30], 5).await.unwrap();
        assert!(paged.iter().all(|paged| paged.micros.len() == 5 && paged.median_us().unwrap() > 0.0));
        let mut driver = subject.connect(0).await.unwrap();
        let gone = driver.list_parts(&paged[1].key, &paged[1].upload, 10, 0).await.unwrap_err();
        assert!(gone.to_string().contains("status 404: NoSuchUpload"), "{gone}");
        assert!(run(&subject, &[9], 1).await.unwrap_err().to_string().contains("has 9 parts"));
    }

    #[test]
    fn a_line_has_the_median_and_the_p99() {
        let micros: Vec<f64> = (1..=100).map(f64::from).collect();
        let paged = PagedUpload {
            parts: 1_000,
            key: String::new(),
            upload: String::new(),
            sent_in: Duration::from_secs(2),
            micros,
        };
        assert_eq!(paged.median_us(), Some(50.5));
        assert_eq!(paged.describe(), "1,000 parts 50 µs (p99 100 µs)");
        assert_eq!(paged.loading(), "2.0 s, 500/s");
    }
}
