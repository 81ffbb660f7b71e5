//! New connections, each with one `GET /ping`: the answer shows that the server, too, has ended the handshake.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::KeepAliveClient;
use crate::endpoint::Endpoint;
use crate::procfs::{self, Cpu};
use crate::turns::{TurnResult, TurnRunner};

/// Connections that are made at a time.
pub(super) const AT_A_TIME: usize = 16;

/// Makes connections to this server, one after the other from each of some tasks.
pub(super) fn turns(endpoint: &Endpoint, pid: u32) -> TurnRunner<'_> {
    Box::new(move |_, length| Box::pin(turn(endpoint, pid, length)))
}

async fn turn(endpoint: &Endpoint, pid: u32, length: Duration) -> Result<TurnResult> {
    let own = std::process::id();
    let (begun, server, generator) = (Instant::now(), procfs::cpu(pid)?, procfs::cpu(own)?);
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME {
        tasks.spawn(connect_until(endpoint.clone(), begun + length));
    }
    let made: Result<Vec<u64>> = tasks.join_all().await.into_iter().collect();
    let (made, seconds) = (made?.into_iter().sum::<u64>() as f64, begun.elapsed().as_secs_f64());
    let (server, generator) = (procfs::cpu(pid)?.since(server), procfs::cpu(own)?.since(generator));
    let each = |seconds: f64| seconds / made * 1e3;
    Ok(TurnResult {
        rate: made / seconds,
        cpu: Some(Cpu { user: each(server.user), system: each(server.system) }),
        generator: Some(each(generator.seconds())),
        fault: None,
    })
}

async fn connect_until(endpoint: Endpoint, end: Instant) -> Result<u64> {
    let request = format!("GET /ping HTTP/1.1\r\nHost: {}\r\n\r\n", endpoint.host);
    let mut made = 0;
    while Instant::now() < end {
        let reply = KeepAliveClient::connect(&endpoint).await?.exchange(request.as_bytes()).await?;
        if reply.status != 200 {
            bail!("a ping was answered by status {}", reply.status);
        }
        made += 1;
    }
    Ok(made)
}
