//! Keyspaces and tables, created by the first gateway that needs them.
//!
//! A gateway looks up what exists, so a start on a complete schema changes nothing. One gateway at a time creates
//! missing tables: the one that holds the row `lock` of the table `layout`. If two gateways create that table at the
//! same moment, the cluster reports an error and they try again; every statement has `IF NOT EXISTS`.

use std::collections::BTreeSet;
use std::time::Duration;

use scylla::errors::ExecutionError;
use scylla::statement::unprepared::Statement as Text;
use scylla::statement::{Consistency, SerialConsistency};
use tokio::time::{Instant, sleep, timeout_at};

use larder_store::{Error, Kind, Partition, Result};

use crate::blobs;
use crate::client::{ClusterClient, RequestFailure};
use crate::compare_and_set::is_applied;
use crate::errors;
use crate::statements::{self, LayoutStatement};

/// The layout version of this program.
const VERSION: u32 = 1;

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Time until the first log line about a keyspace that cannot be created.
const FIRST_REMINDER_AFTER: Duration = Duration::from_secs(5);
/// Time between further log lines.
const REMINDER_INTERVAL: Duration = Duration::from_secs(30);

/// How long a complete schema may take to reach every node.
const SCHEMA_AGREEMENT_MAX: Duration = Duration::from_secs(5);

/// The subject of error texts.
const WHAT: &str = "schema";

/// The table of the layout version and the lock.
const LAYOUT: &str = "layout";

impl ClusterClient {
    /// Creates the keyspace of a partition if it is missing.
    ///
    /// # Errors
    /// `Misuse` for a table that is in no keyspace of this number of copies.
    pub(crate) async fn ensure(&self, partition: &Partition, deadline: Instant) -> Result<()> {
        let Partition { table, copies: n_val, .. } = partition;
        if !statements::tables(*n_val).contains(table) {
            return Err(Error::new(Kind::Misuse, format!("{}: no table of {n_val} copies", table.name())));
        }
        self.ensure_keyspace(partition.copies, deadline).await
    }

    /// Creates a keyspace with its tables if it is missing.
    pub(crate) async fn ensure_keyspace(&self, n_val: u8, deadline: Instant) -> Result<()> {
        let cell = self.keyspace_cell(n_val);
        if cell.initialized() {
            return Ok(());
        }
        let making = cell.get_or_try_init(|| self.create(n_val, deadline));
        timeout_at(deadline, making).await.map_err(|_| errors::deadline_passed(WHAT))?.map(drop)
    }

    /// Creates what is missing; tries again until the deadline.
    async fn create(&self, n_val: u8, deadline: Instant) -> Result<()> {
        let mut next_reminder = Instant::now() + FIRST_REMINDER_AFTER;
        loop {
            let error = match self.try_create(n_val, deadline).await {
                Ok(true) => {
                    // The node that answered may be ahead of the others. If they do not agree in time, statements wait
                    // for missing tables.
                    let _ = timeout_at(
                        deadline.min(Instant::now() + SCHEMA_AGREEMENT_MAX),
                        self.session.driver().await_schema_agreement(),
                    )
                    .await;
                    let known = self.session.driver().refresh_metadata().await;
                    known.map_err(|error| Error::caused(Kind::Io, WHAT, error))?;
                    return Ok(());
                }
                Ok(false) => Error::new(Kind::TimedOut, "schema: another gateway is creating it, and has not finished"),
                // Neither a newer layout nor a missing permission passes by waiting.
                Err(error) if error.kind == Kind::Misuse || errors::is_forbidden(&error) => return Err(error),
                Err(error) => error,
            };
            if Instant::now() + PAUSE >= deadline {
                return Err(error);
            }
            if Instant::now() >= next_reminder {
                next_reminder = Instant::now() + REMINDER_INTERVAL;
                tracing::warn!(keyspace = self.keyspace(n_val), %error, "keyspace not created yet; trying again");
            }
            sleep(PAUSE).await;
        }
    }

    /// Tries to complete the keyspace; returns whether it is complete.
    async fn try_create(&self, n_val: u8, deadline: Instant) -> Result<bool> {
        if self.missing_tables(n_val, deadline).await?.is_empty() {
            // Also on a complete schema: an older program must not write to a newer layout.
            self.check_version(deadline).await?;
            return Ok(true);
        }
        let keyspace = self.keyspace(Partition::DEFAULT_COPIES);
        self.create_keyspace(Partition::DEFAULT_COPIES, deadline).await?;
        if !self.query_names(statements::TABLES, Some(&keyspace), deadline).await?.contains(LAYOUT) {
            self.change_schema(LayoutStatement::Create.text(&keyspace), deadline).await?;
        }
        self.check_version(deadline).await?;
        // A fresh id for each try: the release frees only the lock that this try took.
        let holder = format!("{:016x}", self.cas_ids.next());
        // The lock expires after a minute, so a gateway that dies here blocks the others for that long at most.
        if !self.apply_condition(LayoutStatement::Lock, Some(&holder), deadline).await? {
            return Ok(false);
        }
        // Only the holder of the lock creates tables: two concurrent changes of one schema can leave nodes with
        // different ones.
        let created = self.create_missing(n_val, deadline).await;
        // If the release fails, the lock expires after a minute.
        let _ = self.apply_condition(LayoutStatement::Unlock, Some(&holder), deadline).await;
        created?;
        Ok(self.missing_tables(n_val, deadline).await?.is_empty())
    }

    async fn create_missing(&self, n_val: u8, deadline: Instant) -> Result<()> {
        self.create_keyspace(n_val, deadline).await?;
        // Race: another gateway may have created tables before this one took the lock.
        for (_, text) in self.missing_tables(n_val, deadline).await? {
            self.change_schema(text, deadline).await?;
        }
        // Crash: the version comes after the tables that it describes.
        if n_val == Partition::DEFAULT_COPIES {
            self.apply_condition(LayoutStatement::SetVersion, Some(&VERSION.to_string()), deadline).await?;
        }
        Ok(())
    }

    /// Missing tables, each with the statement that creates it.
    async fn missing_tables(&self, n_val: u8, deadline: Instant) -> Result<Vec<(&'static str, String)>> {
        let keyspace = self.keyspace(n_val);
        let there = self.query_names(statements::TABLES, Some(&keyspace), deadline).await?;
        Ok(tables(n_val, &keyspace).filter(|(name, _)| !there.contains(*name)).collect())
    }

    async fn create_keyspace(&self, n_val: u8, deadline: Instant) -> Result<()> {
        let keyspace = self.keyspace(n_val);
        if self.query_names(statements::KEYSPACES, None, deadline).await?.contains(&keyspace) {
            return Ok(());
        }
        // A keyspace with more copies than nodes could refuse every quorum.
        let copies = |datacenter: Option<&str>| usize::from(n_val).min(self.session.node_count(datacenter)).max(1);
        self.change_schema(statements::create_keyspace(&keyspace, &self.replication, copies), deadline).await
    }

    /// Refuses a layout version newer than this program.
    async fn check_version(&self, deadline: Instant) -> Result<()> {
        let text = LayoutStatement::Version.text(&self.keyspace(Partition::DEFAULT_COPIES));
        let versions = self.query_names(&text, None, deadline).await?;
        let Some(version) = versions.first() else { return Ok(()) };
        match version.parse::<u32>() {
            Ok(number) if number <= VERSION => Ok(()),
            _ => {
                let text = format!(
                    "schema: keyspaces {}_n… have the layout {version}, this server knows layouts up to {VERSION}: start a newer one",
                    self.prefix
                );
                Err(Error::new(Kind::Misuse, text))
            }
        }
    }

    /// The first column of an answer, as texts.
    pub(crate) async fn query_names(
        &self,
        text: &str,
        value: Option<&str>,
        deadline: Instant,
    ) -> std::result::Result<BTreeSet<String>, RequestFailure> {
        let consistency = if text == LayoutStatement::Version.text(&self.keyspace(Partition::DEFAULT_COPIES)) {
            Consistency::Quorum
        } else {
            Consistency::One
        };
        let answer = self.query(text.to_owned(), value, consistency, deadline).await?;
        let rows = answer.into_rows_result().map_err(|error| errors::unreadable(WHAT, error))?;
        let rows = rows.rows::<(String,)>().map_err(|error| errors::unreadable(WHAT, error))?;
        let names = rows.map(|row| row.map(|(name,)| name).map_err(|error| errors::unreadable(WHAT, error)));
        Ok(names.collect::<Result<_>>()?)
    }

    /// Changes the schema, and waits until the nodes agree on it.
    async fn change_schema(&self, text: String, deadline: Instant) -> Result<()> {
        self.query(text, None, Consistency::One, deadline).await?;
        Ok(())
    }

    /// Runs a conditional statement on the layout table; returns whether it was applied.
    async fn apply_condition(
        &self,
        statement: LayoutStatement,
        value: Option<&str>,
        deadline: Instant,
    ) -> Result<bool> {
        let text = statement.text(&self.keyspace(Partition::DEFAULT_COPIES));
        let answer = self.query(text, value, Consistency::Quorum, deadline).await?;
        is_applied(WHAT, answer)
    }

    async fn query(
        &self,
        text: String,
        value: Option<&str>,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<scylla::response::query_result::QueryResult, RequestFailure> {
        let mut text = Text::new(text);
        text.set_consistency(consistency);
        text.set_serial_consistency(Some(SerialConsistency::Serial));
        text.set_request_timeout(None);
        let values: Vec<&str> = value.into_iter().collect();
        let answer = timeout_at(deadline, self.session.driver().query_unpaged(text, &values[..])).await;
        let failed = |error: ExecutionError| RequestFailure::Driver(WHAT, Box::new(error));
        answer.map_err(|_| RequestFailure::DeadlinePassed(WHAT))?.map_err(failed)
    }
}

/// The tables of a keyspace, each with the statement that creates it: rows, and blobs for the product's own number of
/// copies.
fn tables(n_val: u8, keyspace: &str) -> impl Iterator<Item = (&'static str, String)> {
    let blobs = if n_val == Partition::DEFAULT_COPIES { &blobs::cql::SCHEMA[..] } else { &[] };
    let rows = statements::tables(n_val).iter().map(|table| (table.name(), statements::create_table(keyspace, *table)));
    rows.chain(blobs.iter().map(|(name, text)| (*name, text.replace("{k}", keyspace))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_name_of_its_own_in_its_keyspace() {
        for n_val in [2, 3] {
            let all: Vec<_> = tables(n_val, "ks").collect();
            let names: BTreeSet<_> = all.iter().map(|(name, _)| *name).chain([LAYOUT]).collect();
            assert_eq!(names.len(), all.len() + 1);
            for (name, text) in &all {
                let forms = [format!("EXISTS ks.{name} ("), format!("EXISTS ks.\"{name}\" (")];
                assert!(forms.iter().any(|form| text.contains(form)), "{name}: {text}");
            }
            assert_eq!(names.contains("blob_records"), n_val == Partition::DEFAULT_COPIES);
        }
    }
}
