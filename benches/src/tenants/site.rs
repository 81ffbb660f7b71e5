//! The places of both tenants on a server: buckets with their hooks and policies, and users.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::admin_socket::run_command;
use super::attack::TenantAttack;
use super::value_requests::ValueDriver;
use crate::bare_http::BareHttp;
use crate::endpoint::Endpoint;
use crate::keys::ValuePool;
use crate::s3::{BucketLocation, S3Driver};
use crate::server::{S3Account, ServerProcess};

/// Users whose first log-ins are measured, half of them in calm.
pub(super) const LOG_INS: u64 = 100;
/// The password of those users.
pub(super) const PASSWORD: &str = "Right1234";
/// Wildcards in the policy of the hostile tenant's bucket, and stars in each.
const WILDCARDS: (usize, usize) = (110, 20);
/// The values that a backup copies: how many, and of how many bytes.
const FILLED: [(u64, usize); 2] = [(50_000, 2_000), (300, 1_200_000)];
/// Bytes of the object that is read over S3.
const VALUE_BYTES: usize = 1_024;
/// Webhooks of a bucket: the most that it may have.
const WEBHOOKS: usize = 8;

/// The hosts that the server's webhooks may name.
pub(super) struct WebhookHosts {
    /// One that takes every notice.
    receiver: BareHttp,
    /// One that takes connections and answers none.
    silent: TcpListener,
    /// One where nothing listens.
    closed: Endpoint,
}

/// Both tenants on a server.
#[derive(Clone)]
pub(super) struct TenantSite {
    /// Riak's HTTP.
    pub(super) http: Endpoint,
    /// The same with TLS.
    pub(super) https: Endpoint,
    /// S3.
    pub(super) s3: Endpoint,
    /// The S3 admin, who owns the buckets of both.
    pub(super) account: S3Account,
    /// The socket of `kv-admin`.
    pub(super) socket: PathBuf,
}

impl WebhookHosts {
    /// All three, each on a port of its own.
    ///
    /// # Errors
    ///
    /// When one cannot listen.
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            receiver: BareHttp::start(b"", None)?,
            silent: TcpListener::bind("127.0.0.1:0")?,
            closed: Endpoint::free()?,
        })
    }

    /// The value of `--webhook-hosts`.
    ///
    /// # Errors
    ///
    /// When a listener has lost its address.
    pub(super) fn setting(&self) -> Result<String> {
        let silent = self.silent.local_addr()?;
        Ok(format!("{},{silent},{}", self.receiver.endpoint.address, self.closed.address))
    }

    /// The hooks of a bucket whose notices arrive, and of one whose notices never do.
    fn hooks(&self) -> Result<[String; 2]> {
        let hook = |at: &dyn std::fmt::Display, number: usize| {
            format!(r#"{{"mod":"larder","fun":"webhook","arg":"http://{at}/{number}"}}"#)
        };
        let silent = self.silent.local_addr()?;
        let dead = (0..WEBHOOKS).map(|number| match number % 2 {
            0 => hook(&silent, number),
            _ => hook(&self.closed.address, number),
        });
        let hooks = |hooks: Vec<String>| format!(r#"{{"props":{{"postcommit":[{}]}}}}"#, hooks.join(","));
        Ok([hooks(vec![hook(&self.receiver.endpoint.address, 0)]), hooks(dead.collect())])
    }
}

impl TenantSite {
    /// Makes the places that this attack and the calm requests beside it need.
    ///
    /// # Errors
    ///
    /// When the server refuses one.
    pub(super) async fn prepare(
        &self,
        attack: TenantAttack,
        server: &ServerProcess,
        hosts: &WebhookHosts,
    ) -> Result<()> {
        match attack {
            TenantAttack::Webhooks => {
                let [live, dead] = hosts.hooks()?;
                self.set_props("calm", &live).await?;
                self.set_props("noisy", &dead).await
            }
            TenantAttack::Jobs | TenantAttack::Hooks => {
                self.set_props("calm", r#"{"props":{"precommit":["Bench.pass"]}}"#).await?;
                self.set_props("noisy", r#"{"props":{"precommit":["Bench.run"]}}"#).await?;
                let mut driver = ValueDriver::connect(&server.endpoint).await?;
                driver.request.put(format_args!("/buckets/noisy-input/keys/one"));
                driver.request.add(&[b"1"]);
                driver.send_checked(204).await
            }
            TenantAttack::Policies => self.open_bucket().await,
            TenantAttack::LogIns => add_users(&self.socket),
            TenantAttack::Backups => self.fill().await,
        }
    }

    /// Stores values in rows and in files, so that a backup has something to copy.
    async fn fill(&self) -> Result<()> {
        let mut driver = ValueDriver::connect(&self.http).await?;
        for (count, bytes) in FILLED {
            let body = vec![b'x'; bytes];
            for number in 0..count {
                driver.request.put(format_args!("/buckets/filled/keys/{bytes}-{number}"));
                driver.request.add(&[&body]);
                driver.send_checked(204).await?;
            }
        }
        Ok(())
    }

    /// A connection over S3 to one of the buckets.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(super) async fn s3_driver(&self, bucket: &str) -> Result<S3Driver> {
        let place =
            BucketLocation { endpoint: self.s3.clone(), account: self.account.clone(), bucket: bucket.to_owned() };
        S3Driver::connect(&place, Arc::new(ValuePool::new(VALUE_BYTES)), 1).await
    }

    async fn set_props(&self, bucket: &str, props: &str) -> Result<()> {
        let mut driver = ValueDriver::connect(&self.http).await?;
        driver.request.put(format_args!("/buckets/{bucket}/props"));
        driver.request.add(&[props.as_bytes()]);
        driver.send_checked(204).await
    }

    /// A bucket whose policy lets everyone delete keys that fit one of many costly patterns.
    async fn open_bucket(&self) -> Result<()> {
        let (count, stars) = WILDCARDS;
        let patterns = (0..count).map(|number| {
            let mut pattern = "arn:aws:s3:::noisy/".to_owned();
            for _ in 0..stars {
                pattern += "*a";
            }
            // No key has such an end, so that the whole pattern is tried.
            let _ = write!(pattern, "!{number}");
            pattern
        });
        let policy = serde_json::json!({"Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": "*", "Action": "s3:DeleteObject", "Resource": patterns.collect::<Vec<_>>()
        }]});
        let mut driver = self.s3_driver("noisy").await?;
        driver.make_bucket().await?;
        driver.put_policy(&policy.to_string()).await?;
        let mut driver = self.s3_driver("calm").await?;
        driver.make_bucket().await?;
        let reply = driver.put("key", VALUE_BYTES).await?;
        ensure!(reply.status == 200, "a put was answered by status {}", reply.status);
        Ok(())
    }
}

/// Users who may read everything, and one whose password is guessed; then switches security on.
fn add_users(socket: &Path) -> Result<()> {
    let run = |line: &str| run_command(socket, &line.split(' ').collect::<Vec<_>>());
    run(&format!("security add-user victim password={PASSWORD}"))?;
    for number in 0..LOG_INS {
        run(&format!("security add-user calm{number} password={PASSWORD}"))?;
    }
    for line in ["add-source all 127.0.0.1/32 password", "grant riak_kv.get on any to all", "enable"] {
        run(&format!("security {line}"))?;
    }
    Ok(())
}
