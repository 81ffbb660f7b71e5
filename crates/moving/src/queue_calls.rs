//! Requests to the replication queue of each node of a source: it hands each element out once.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::queue_source::{ElementRoom, MEMORY_UNIT, QueueFetch, TakenElement};
use crate::rules::{QueueAnswer, QueueTotals, members_up, queue_length};
use crate::source::{GET, Source};
use crate::source_calls::{ANSWER_BYTES_MAX, PlannedCall, SourceError, read_body};
use crate::source_http::SourceRequest;

/// Most bytes of an unreadable element that are shown.
const SHOWN_BYTES_MAX: usize = 48;

impl Source {
    /// The elements in the queue of a node; `None`: it has no such queue.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) async fn queue_length(&self, host: &str) -> Result<Option<u64>, SourceError> {
        let target = format!("/queuename/{}", self.queue.name);
        let call = PlannedCall {
            method: SourceRequest::Post,
            headers: &|_| vec![("accept", "*/*".to_owned()), ("content-type", "application/json".to_owned())],
            body: r#"{"keys-clocks": []}"#,
            target: &target,
            ..GET
        };
        let mut answer = self.calls().send_to(host, call).await?;
        let body = read_body(&mut answer, ANSWER_BYTES_MAX).await?;
        Ok(Some(body).filter(|_| answer.status == 200).and_then(|body| queue_length(&self.queue.name, &body)))
    }

    /// The counters of a node; `None`: it has none.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) async fn queue_totals(&self, host: &str) -> Result<Option<QueueTotals>, SourceError> {
        let mut answer = self.calls().send_to(host, PlannedCall { target: "/stats", ..GET }).await?;
        let body = read_body(&mut answer, ANSWER_BYTES_MAX).await?;
        Ok(QueueTotals::from_answer(&body).filter(|_| answer.status == 200))
    }

    /// The nodes of the source that are up; `None`: it does not tell.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) async fn members(&self) -> Result<Option<usize>, SourceError> {
        let mut answer = self.calls().send(PlannedCall { target: "/membership_request", ..GET }).await?;
        let body = read_body(&mut answer, ANSWER_BYTES_MAX).await?;
        Ok(members_up(&body).filter(|_| answer.status == 200))
    }

    /// Takes the next element from the queue of a node. It is gone there, whether its answer arrives or not.
    ///
    /// # Errors
    /// The node does not answer, or its answer breaks off.
    pub(crate) async fn take_element(&self, host: &str) -> Result<QueueFetch, SourceError> {
        let target = format!("/queuename/{}?object_format=internal", self.queue.name);
        let mut answer = self.calls().send_to(host, PlannedCall { target: &target, ..GET }).await?;
        if answer.status != 200 {
            return Ok(QueueFetch::Refused(self.calls().refused(&mut answer).await.to_string()));
        }
        let ElementRoom { memory, bytes_max } = match self.queue.reserve(&answer.headers).await {
            Ok(room) => room,
            Err(error) => return Ok(QueueFetch::Unreadable(error.to_string())),
        };
        let body = match read_body(&mut answer, bytes_max).await {
            Err(SourceError::TooLarge) => return Ok(QueueFetch::Unreadable(SourceError::TooLarge.to_string())),
            body => body?,
        };
        Ok(read_element(body, memory))
    }
}

fn read_element(body: Bytes, memory: OwnedSemaphorePermit) -> QueueFetch {
    let max = memory.num_permits() * MEMORY_UNIT;
    match QueueAnswer::decode(body.clone(), max) {
        Ok(QueueAnswer::Empty) => QueueFetch::Empty,
        Ok(QueueAnswer::Element(element)) => {
            QueueFetch::Element(Box::new(TakenElement { key: element.key.clone(), element: Some(element), memory }))
        }
        Err(error) => match QueueAnswer::key_alone(body.clone()) {
            Some(key) => QueueFetch::Element(Box::new(TakenElement { key, element: None, memory })),
            None => {
                let first = body.get(..SHOWN_BYTES_MAX).unwrap_or(&body);
                QueueFetch::Unreadable(format!("{error}; {} bytes: {}", body.len(), first.escape_ascii()))
            }
        },
    }
}
