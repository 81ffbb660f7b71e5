//! The figures of a server about its own memory, from `/metrics`.

use anyhow::{Result, bail};

use crate::client::KeepAliveClient;
use crate::endpoint::Endpoint;

/// Words in the names of metrics about memory.
const WORDS: [&str; 4] = ["memory", "cache", "memtable", "allocat"];

/// The text of `/metrics`.
///
/// # Errors
///
/// A broken connection, or any answer but 200.
pub(crate) async fn fetch(endpoint: &Endpoint) -> Result<String> {
    let mut client = KeepAliveClient::connect(endpoint).await?;
    let mut request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", endpoint.host).into_bytes();
    let reply = client.exchange_body(&mut request, &[], true).await?;
    if reply.status != 200 {
        bail!("/metrics was answered by status {}", reply.status);
    }
    Ok(String::from_utf8_lossy(client.body()).into_owned())
}

/// The samples about memory that are not 0, by their names with labels.
pub(crate) fn memory(text: &str) -> Vec<(String, f64)> {
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse::<f64>().ok()?))
    });
    samples
        .filter(|(name, value)| {
            name.starts_with("larder_") && WORDS.iter().any(|word| name.contains(word)) && *value != 0.0
        })
        .collect()
}

/// The bytes of caches in use; `None` when the server has no such metric.
pub(crate) fn cache_bytes(samples: &[(String, f64)]) -> Option<u64> {
    let is_use = |name: &str| name.contains("cache") && name.contains("bytes") && !name.contains("max");
    let caches: Vec<f64> = samples.iter().filter(|(name, _)| is_use(name)).map(|(_, value)| *value).collect();
    (!caches.is_empty()).then(|| caches.iter().sum::<f64>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_about_memory_are_chosen() {
        let text = "# HELP larder_memory_max_bytes x\nlarder_memory_max_bytes{draws=\"small\"} 1000\n\
            larder_cache_bytes{part=\"blocks\"} 70\nlarder_cache_bytes{part=\"rows\"} 5\nlarder_cache_max_bytes 100\n\
            larder_memory_waiting 0\nlarder_members 1\nnode_memory 3\n";
        let samples = memory(text);
        assert_eq!(samples.len(), 4, "{samples:?}");
        assert_eq!(cache_bytes(&samples), Some(75));
        assert_eq!(cache_bytes(&samples[..1]), None);
    }
}
