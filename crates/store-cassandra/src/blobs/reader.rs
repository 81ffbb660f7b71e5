//! Reads one blob, a block ahead at most.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use larder_store::{BlobReader, Error, Kind, Result};
use tokio::task::JoinHandle;

use super::cql::{Cql, unreadable};
use super::format::{check, place};
use super::records::{Name, Records};

/// A blob being read. Its blocks stay for the time of grace after it was removed; later they are missing.
pub(super) struct Reader {
    records: Arc<Records>,
    name: Name,
    /// Bytes in a full block.
    block: u64,
    length: u64,
    current: Option<(u64, Bytes)>,
    ahead: Option<Ahead>,
}

/// The block behind the one being read, on its way.
struct Ahead {
    index: u64,
    task: JoinHandle<Result<Bytes>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// Opens a blob whose record was found.
    pub(super) fn new(records: Arc<Records>, name: Name, block: usize, length: u64) -> Self {
        Self { records, name, block: block as u64, length, current: None, ahead: None }
    }

    /// The block, and from the first to the second in a row on the one behind it in advance.
    async fn at(&mut self, index: u64) -> Result<Bytes> {
        if let Some((at, bytes)) = &self.current
            && *at == index
        {
            return Ok(bytes.clone());
        }
        let goes_on = index > 0 && self.current.as_ref().is_some_and(|(at, _)| at + 1 == index);
        let bytes = match self.ahead.take() {
            Some(mut ahead) if ahead.index == index => match (&mut ahead.task).await {
                Ok(answer) => answer?,
                Err(error) => return Err(Error::caused(Kind::Io, "reading a block", error)),
            },
            _ => self.fetch(index).await?,
        };
        self.current = Some((index, bytes.clone()));
        if (goes_on || index == 0) && (index + 1) * self.block < self.length {
            let fetch = self.fetch(index + 1);
            self.ahead = Some(Ahead { index: index + 1, task: tokio::spawn(fetch) });
        }
        Ok(bytes)
    }

    fn fetch(&self, index: u64) -> impl Future<Output = Result<Bytes>> + Send + use<> {
        let (records, name) = (self.records.clone(), self.name);
        let expected = self.length.saturating_sub(index * self.block).min(self.block);
        async move {
            let found = get(&records, name, index).await?;
            let passes = |(stored, bytes): &(i32, Bytes)| {
                bytes.len() as u64 == expected && *stored == check(name.id, name.run, index, bytes)
            };
            match found.filter(passes) {
                Some((_, bytes)) => Ok(bytes),
                None => {
                    records.damaged.fetch_add(1, Ordering::Relaxed);
                    let what = format!("blob {}: block {index} is missing or damaged", name.id.hex());
                    Err(Error::new(Kind::Damaged, what))
                }
            }
        }
    }
}

#[async_trait]
impl BlobReader for Reader {
    fn length(&self) -> u64 {
        self.length
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        if offset >= self.length || max == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.at(offset / self.block).await?;
        let from = (offset % self.block) as usize;
        Ok(bytes.slice(from..from.saturating_add(max).min(bytes.len())))
    }
}

async fn get(records: &Records, name: Name, index: u64) -> Result<Option<(i32, Bytes)>> {
    let (_, id, run) = name.key();
    let (group, number) = place(index);
    let answer = records.cql.read(Cql::GetBlock, (id, run, group, number)).await?;
    let rows = answer.into_rows_result().map_err(unreadable)?;
    rows.maybe_first_row::<(i32, Bytes)>().map_err(unreadable)
}
