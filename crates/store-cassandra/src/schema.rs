//! Keyspaces and tables: made when they are needed, by whoever comes first.
//!
//! What is there already is looked up, so that a gateway that starts on a finished schema changes nothing. What is missing is made
//! by one gateway at a time: who holds the row `lock` of the table `layout`. Two that make that table at the same moment are
//! told so by the cluster and try again; every statement is one of `IF NOT EXISTS`.

use std::collections::BTreeSet;
use std::time::Duration;

use scylla::errors::ExecutionError;
use scylla::statement::unprepared::Statement as Text;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row as CqlRow};
use tokio::time::{Instant, sleep, timeout_at};

use larder_store::{Error, Kind, Partition, Result};

use crate::blobs;
use crate::cluster::{Cluster, Failure};
use crate::errors;
use crate::statements::{self, Schema};

/// The layout that this program reads and writes.
const VERSION: u32 = 1;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// How long nothing is said of what keeps a keyspace from being made.
const SILENCE: Duration = Duration::from_secs(5);
/// How often it is said then.
const REMINDER: Duration = Duration::from_secs(30);

/// How long a finished schema may take to reach every node.
const AGREEMENT: Duration = Duration::from_secs(5);

/// What errors are about.
const WHAT: &str = "schema";

/// The table of the number and the lock.
const LAYOUT: &str = "layout";

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        self.into()
    }
}

impl Cluster {
    /// Makes the keyspace of a partition if it is not there.
    ///
    /// # Errors
    /// `Misuse` for a table that is in no keyspace of this number of copies.
    pub(crate) async fn ensure(&self, partition: &Partition, deadline: Instant) -> Result<()> {
        let Partition { table, n_val, .. } = partition;
        if !statements::tables(*n_val).contains(table) {
            return Err(Error::new(Kind::Misuse, format!("{}: no table of {n_val} copies", table.name())));
        }
        self.ensure_keyspace(partition.n_val, deadline).await
    }

    /// Makes a keyspace with its tables if it is not there.
    pub(crate) async fn ensure_keyspace(&self, n_val: u8, deadline: Instant) -> Result<()> {
        let made = self.made(n_val);
        if made.initialized() {
            return Ok(());
        }
        let making = made.get_or_try_init(|| self.make(n_val, deadline));
        timeout_at(deadline, making).await.map_err(|_| errors::late(WHAT))?.map(drop)
    }

    /// Makes what is missing, again and again until it is there or it is too late.
    async fn make(&self, n_val: u8, deadline: Instant) -> Result<()> {
        let mut told_next = Instant::now() + SILENCE;
        loop {
            let error = match self.try_make(n_val, deadline).await {
                Ok(true) => {
                    // Who looked at one node may be ahead of the others. What they do not agree on in time is waited for
                    // where it is needed.
                    let _ = timeout_at(deadline.min(Instant::now() + AGREEMENT), self.session.await_schema_agreement())
                        .await;
                    let known = self.session.refresh_metadata().await;
                    known.map_err(|error| Error::caused(Kind::Io, WHAT, error))?;
                    return Ok(());
                }
                Ok(false) => Error::new(Kind::TimedOut, "schema: another gateway makes it, and has not finished"),
                Err(error) if error.kind == Kind::Misuse || errors::is_forbidden(&error) => return Err(error),
                Err(error) => error,
            };
            if Instant::now() + PAUSE >= deadline {
                return Err(error);
            }
            if Instant::now() >= told_next {
                told_next = Instant::now() + REMINDER;
                tracing::warn!(keyspace = self.keyspace(n_val), %error, "waiting for the cluster");
            }
            sleep(PAUSE).await;
        }
    }

    /// Whether the keyspace is complete now.
    async fn try_make(&self, n_val: u8, deadline: Instant) -> Result<bool> {
        if self.missing(n_val, deadline).await?.is_empty() {
            self.check_version(deadline).await?;
            return Ok(true);
        }
        let own = self.keyspace(Partition::N_VAL);
        self.create_keyspace(Partition::N_VAL, deadline).await?;
        if !self.names(statements::TABLES, Some(&own), deadline).await?.contains(LAYOUT) {
            self.change(Schema::Create.text(&own), deadline).await?;
        }
        self.check_version(deadline).await?;
        let holder = format!("{:016x}", self.ids.next());
        if !self.decide(Schema::Lock, Some(&holder), deadline).await? {
            return Ok(false);
        }
        let made = self.make_missing(n_val, deadline).await;
        // It ends on its own after a minute.
        let _ = self.decide(Schema::Unlock, Some(&holder), deadline).await;
        made?;
        Ok(self.missing(n_val, deadline).await?.is_empty())
    }

    async fn make_missing(&self, n_val: u8, deadline: Instant) -> Result<()> {
        self.create_keyspace(n_val, deadline).await?;
        for (_, text) in self.missing(n_val, deadline).await? {
            self.change(text, deadline).await?;
        }
        if n_val == Partition::N_VAL {
            self.decide(Schema::SetVersion, Some(&VERSION.to_string()), deadline).await?;
        }
        Ok(())
    }

    /// Tables that are not there, each with what makes it.
    async fn missing(&self, n_val: u8, deadline: Instant) -> Result<Vec<(&'static str, String)>> {
        let keyspace = self.keyspace(n_val);
        let there = self.names(statements::TABLES, Some(&keyspace), deadline).await?;
        Ok(tables(n_val, &keyspace).filter(|(name, _)| !there.contains(*name)).collect())
    }

    async fn create_keyspace(&self, n_val: u8, deadline: Instant) -> Result<()> {
        let keyspace = self.keyspace(n_val);
        if self.names(statements::KEYSPACES, None, deadline).await?.contains(&keyspace) {
            return Ok(());
        }
        let copies = |datacenter: Option<&str>| usize::from(n_val).min(self.nodes(datacenter).1).max(1);
        self.change(statements::create_keyspace(&keyspace, &self.replication, copies), deadline).await
    }

    /// Refuses a layout that a newer program has made.
    async fn check_version(&self, deadline: Instant) -> Result<()> {
        let text = Schema::Version.text(&self.keyspace(Partition::N_VAL));
        let found = self.names(&text, None, deadline).await?;
        let Some(found) = found.first() else { return Ok(()) };
        match found.parse::<u32>() {
            Ok(number) if number <= VERSION => Ok(()),
            _ => {
                let text = format!(
                    "schema: keyspaces {}_n… have the layout {found}, this server knows layouts up to {VERSION}: start a newer one",
                    self.prefix
                );
                Err(Error::new(Kind::Misuse, text))
            }
        }
    }

    /// The first column of an answer.
    pub(crate) async fn names(
        &self,
        text: &str,
        value: Option<&str>,
        deadline: Instant,
    ) -> std::result::Result<BTreeSet<String>, Failure> {
        let consistency = if text == Schema::Version.text(&self.keyspace(Partition::N_VAL)) {
            Consistency::Quorum
        } else {
            Consistency::One
        };
        let answer = self.ask(text.to_owned(), value, consistency, deadline).await?;
        let rows = answer.into_rows_result().map_err(|error| errors::unreadable(WHAT, error))?;
        let rows = rows.rows::<(String,)>().map_err(|error| errors::unreadable(WHAT, error))?;
        let names = rows.map(|row| row.map(|(name,)| name).map_err(|error| errors::unreadable(WHAT, error)));
        Ok(names.collect::<Result<_>>()?)
    }

    /// Changes the schema, and waits until the nodes agree on it.
    async fn change(&self, text: String, deadline: Instant) -> Result<()> {
        self.ask(text, None, Consistency::One, deadline).await?;
        Ok(())
    }

    /// Runs a condition on the table of the schema.
    async fn decide(&self, statement: Schema, value: Option<&str>, deadline: Instant) -> Result<bool> {
        let text = statement.text(&self.keyspace(Partition::N_VAL));
        let answer = self.ask(text, value, Consistency::Quorum, deadline).await?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(WHAT, error))?;
        let row = answer.first_row::<CqlRow>().map_err(|error| errors::unreadable(WHAT, error))?;
        Ok(matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true)))))
    }

    async fn ask(
        &self,
        text: String,
        value: Option<&str>,
        consistency: Consistency,
        deadline: Instant,
    ) -> std::result::Result<scylla::response::query_result::QueryResult, Failure> {
        let mut text = Text::new(text);
        text.set_consistency(consistency);
        text.set_serial_consistency(Some(SerialConsistency::Serial));
        text.set_request_timeout(None);
        let values: Vec<&str> = value.into_iter().collect();
        let answer = timeout_at(deadline, self.session.query_unpaged(text, &values[..])).await;
        let failed = |error: ExecutionError| Failure::Driver(WHAT, Box::new(error));
        answer.map_err(|_| Failure::Late(WHAT))?.map_err(failed)
    }
}

/// The tables of a keyspace, each with what makes it: rows, and with the product's own also blobs.
fn tables(n_val: u8, keyspace: &str) -> impl Iterator<Item = (&'static str, String)> {
    let blobs = if n_val == Partition::N_VAL { &blobs::cql::SCHEMA[..] } else { &[] };
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
                let made = [format!("EXISTS ks.{name} ("), format!("EXISTS ks.\"{name}\" (")];
                assert!(made.iter().any(|made| text.contains(made)), "{name}: {text}");
            }
            assert_eq!(names.contains("blob_records"), n_val == Partition::N_VAL);
        }
    }
}
