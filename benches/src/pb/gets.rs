//! GETs: protocol buffers beside bare frames and Redis, one at a time and pipelined; HTTP beside bare hyper.

use anyhow::{Result, bail};

use super::run::{PbRun, PbSubjects};
use crate::bare_pb::BarePb;
use crate::cells::{KvOperation, KvSubject};
use crate::driver::KvDriver;
use crate::keys::key;
use crate::kv_location::KvProtocol;
use crate::load;
use crate::rows;
use crate::targets::{self, BenchTarget};
use crate::turns::{BARE_CONNECTIONS, Comparison, ComparisonSide, in_turns, kv_turns};

/// The sides of a comparison: Larder, bare frames, and Redis if there is one.
pub(super) type GetSides = (ComparisonSide, ComparisonSide, Option<ComparisonSide>);

impl PbRun {
    /// Measures GETs.
    ///
    /// # Errors
    ///
    /// When a connection cannot be made, or a bare server does not start.
    pub(super) async fn gets(&mut self, subjects: &PbSubjects) -> Result<()> {
        let bare_server = BarePb::start(&self.answer(&subjects.pb).await?, None)?;
        let bare = subjects.pb.at(&bare_server.endpoint, KvProtocol::PB, Some(bare_server.pid()));
        eprintln!("comparing GET over PB with bare frames and Redis");
        let (ours, base, redis) = self.sides(subjects, &bare, KvOperation::Get).await?;
        let frames = Comparison::of(&ours, &base);
        self.report.rate_target(targets::PB_GET, &frames, "bare frames");
        self.report.cpu_target(targets::PB_GET_CPU, &frames, "bare frames");
        self.redis_target(targets::PB_REDIS_GET, &ours, redis.as_ref());
        eprintln!("comparing pipelined GET over PB with bare frames and Redis");
        let (ours, base, redis) = self.sides(subjects, &bare, KvOperation::PipelinedGet).await?;
        self.redis_target(targets::PB_REDIS_PIPELINED, &ours, redis.as_ref());
        let name = "PB GET 1 KB, pipelined ×16, to bare frames";
        self.report.comparison(name, &Comparison::of(&ours, &base), "bare frames");
        drop(bare_server);
        rows::http_gets(&mut self.report, &subjects.http, self.plan.rounds).await
    }

    /// Runs an operation against all sides in turns.
    ///
    /// # Errors
    ///
    /// When a connection cannot be made.
    pub(super) async fn sides(
        &self,
        subjects: &PbSubjects,
        bare: &KvSubject,
        operation: KvOperation,
    ) -> Result<GetSides> {
        let turns = |subject| kv_turns(subject, operation, BARE_CONNECTIONS);
        let (ours, base) = (turns(&subjects.pb), turns(bare));
        Ok(match &subjects.redis {
            Some(redis) => {
                let [ours, base, redis] = in_turns([ours, base, turns(redis)], self.plan.rounds).await?;
                (ours, base, Some(redis))
            }
            None => {
                let [ours, base] = in_turns([ours, base], self.plan.rounds).await?;
                (ours, base, None)
            }
        })
    }

    /// Adds the target of a comparison with Redis; without one it is not measured.
    pub(super) fn redis_target(
        &mut self,
        promise: targets::TargetPromise,
        ours: &ComparisonSide,
        redis: Option<&ComparisonSide>,
    ) {
        let Some(redis) = redis else {
            self.report.targets.push(BenchTarget::new(promise, None, "no redis-server was given with --redis"));
            return;
        };
        self.report.rate_target(promise, &Comparison::of(ours, redis), "Redis");
    }

    /// The file with the frame that the server answers to a get, framing included.
    ///
    /// # Errors
    ///
    /// When the key is missing, or the file cannot be written.
    pub(super) async fn answer(&self, subject: &KvSubject) -> Result<std::path::PathBuf> {
        let KvDriver::Framed(mut driver) = KvDriver::connect(&subject.place, subject.values.clone(), 0).await? else {
            bail!("answers of HTTP are no frames");
        };
        let file = self.scratch.join("answer");
        std::fs::write(&file, driver.get_frame(&key(load::READ, 0)).await?)?;
        Ok(file)
    }
}
