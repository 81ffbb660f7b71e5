//! Durable PUTs: protocol buffers and HTTP beside a bare edge with a bare group commit, and Redis; the gateway in process beside
//! that commit alone. An overwrite is measured beside a new key in each.

use anyhow::Result;

use super::run::{PbRun, PbSubjects};
use crate::bare_pb::BarePb;
use crate::cells::KvOperation;
use crate::in_process::{InProcessArgs, InProcessSide};
use crate::kv_location::KvProtocol;
use crate::rows;
use crate::targets;
use crate::turns::{BARE_CONNECTIONS, BARE_VALUE_BYTES, Comparison, in_process_turns, in_turns, kv_turns};

impl PbRun {
    /// Measures durable PUTs.
    ///
    /// # Errors
    ///
    /// When a connection cannot be made, or a bare program fails.
    pub(super) async fn puts(&mut self, subjects: &PbSubjects) -> Result<()> {
        self.pb_puts(subjects).await?;
        rows::http_puts(&mut self.report, &subjects.http, &self.scratch, self.plan.rounds).await?;
        self.in_process().await
    }

    async fn pb_puts(&mut self, subjects: &PbSubjects) -> Result<()> {
        let data = self.scratch.join("bare-pb");
        let bare_server = BarePb::start(&self.answer(&subjects.pb).await?, Some(&data))?;
        let bare = subjects.pb.at(&bare_server.endpoint, KvProtocol::PB, Some(bare_server.pid()));
        eprintln!("comparing durable PUT over PB with bare frames and a bare group commit, and Redis");
        let (ours, base, redis) = self.sides(subjects, &bare, KvOperation::PutDurable).await?;
        drop(bare_server);
        std::fs::remove_dir_all(data)?;
        self.redis_target(targets::PB_REDIS_PUT, &ours, redis.as_ref());
        self.report.rate_target(targets::PB_PUT, &Comparison::of(&ours, &base), "bare frames + group commit");
        let put = |operation| kv_turns(&subjects.pb, operation, BARE_CONNECTIONS);
        let sides = [put(KvOperation::PutExisting), put(KvOperation::PutDurable)];
        let [existing, fresh] = in_turns(sides, self.plan.rounds).await?;
        let name = "durable PUT over PB, existing key to a new one";
        self.report.comparison(name, &Comparison::of(&existing, &fresh), "new key");
        Ok(())
    }

    async fn in_process(&mut self) -> Result<()> {
        eprintln!("comparing gateway.put in process with a bare group commit");
        let side = |side, name: &str, existing| InProcessArgs {
            side,
            data: self.scratch.join(format!("process-{name}")),
            seconds: 0.0,
            writers: BARE_CONNECTIONS,
            value_bytes: BARE_VALUE_BYTES,
            round: 0,
            existing,
        };
        let sides = [
            side(InProcessSide::Gateway, "gateway", false),
            side(InProcessSide::Bare, "bare", false),
            side(InProcessSide::Gateway, "gateway-existing", true),
            side(InProcessSide::Bare, "bare-existing", true),
        ];
        let [fresh, base, existing, base_existing] =
            in_turns(sides.each_ref().map(in_process_turns), self.plan.rounds).await?;
        self.report.rate_target(targets::PROCESS_PUT, &Comparison::of(&fresh, &base), "bare group commit");
        let mut add = |name: &str, ours, base, base_name: &str| {
            self.report.comparison(name, &Comparison::of(ours, base), base_name);
        };
        add("gateway.put in process, existing key", &existing, &base_existing, "bare group commit of existing keys");
        add("gateway.put in process, existing key to a new one", &existing, &fresh, "new key");
        Ok(sides.iter().try_for_each(|side| std::fs::remove_dir_all(&side.data))?)
    }
}
