//! The requests of the calm tenant, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use tokio::time::sleep;

use super::attack::TenantAttack;
use super::site::{LOG_INS, PASSWORD, TenantSite};
use super::value_requests::ValueDriver;
use crate::s3::S3Driver;

/// Longest latency of the histogram, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;

/// The calm tenant's connection.
pub(super) enum CalmTenant {
    /// Puts into a bucket with a hook of its own.
    Put { driver: ValueDriver, number: u64 },
    /// Reads over S3.
    Read(S3Driver),
    /// First log-ins of users, each once: a password that was right is remembered.
    LogIn { driver: ValueDriver, number: u64 },
}

impl CalmTenant {
    /// The tenant whose requests show this attack.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(super) async fn connect(site: &TenantSite, attack: TenantAttack) -> Result<Self> {
        Ok(match attack {
            TenantAttack::Webhooks | TenantAttack::Jobs | TenantAttack::Hooks | TenantAttack::Backups => {
                Self::Put { driver: ValueDriver::connect(&site.http).await?, number: 0 }
            }
            TenantAttack::Policies => Self::Read(site.s3_driver("calm").await?),
            TenantAttack::LogIns => Self::LogIn { driver: ValueDriver::connect(&site.https).await?, number: 0 },
        })
    }

    /// Repeats its request for this time; returns the latencies in microseconds.
    ///
    /// # Errors
    ///
    /// A broken connection, or an answer other than the expected one.
    pub(super) async fn measure(&mut self, length: Duration) -> Result<Histogram<u64>> {
        let mut latencies = Histogram::new_with_max(LATENCY_US_MAX, 3)?;
        let end = Instant::now() + length;
        let log_ins = LOG_INS / 2;
        while Instant::now() < end && (!matches!(self, Self::LogIn { .. }) || latencies.len() < log_ins) {
            let begun = Instant::now();
            self.once().await?;
            latencies.saturating_record(begun.elapsed().as_micros() as u64);
            if matches!(self, Self::LogIn { .. }) {
                // The log-ins are spread over the time.
                sleep((length / log_ins as u32).saturating_sub(begun.elapsed())).await;
            }
        }
        Ok(latencies)
    }

    async fn once(&mut self) -> Result<()> {
        let (status, expected) = match self {
            Self::Put { driver, number } => {
                *number += 1;
                driver.request.put(format_args!("/buckets/calm/keys/{}", *number % 1_000));
                driver.request.add(&[br#"{"amount":1}"#]);
                (driver.send().await?.status, 204)
            }
            Self::Read(driver) => (driver.get("key").await?.status, 200),
            Self::LogIn { driver, number } => {
                let user = format!("calm{number}:{PASSWORD}");
                *number += 1;
                driver.request.get(format_args!("/buckets/calm/keys/none"));
                driver.request.add_header(format_args!("Authorization: Basic {}", STANDARD.encode(user)));
                (driver.send().await?.status, 404)
            }
        };
        ensure!(status == expected, "a calm request was answered by status {status}, not {expected}");
        Ok(())
    }
}
