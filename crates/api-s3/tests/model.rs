//! Random requests through two gateways over one store in memory, compared with the model of the test kit. Time is the
//! runtime's: hours pass in no time.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use larder_admission::MemoryBudget;
use larder_api_s3::{S3Service, S3Settings};
use larder_core::{Config, Core, GatewayPorts};
use larder_encryption::key_ring::KeyRing;
use larder_net::{RequestSource, Requester};
use larder_rows::{ActorId, Timestamp};
use larder_s3::{Objects, ObjectsConfig, S3Catalogue};
use larder_store::Clock;
use larder_store::memory::MemoryStore;
use larder_testkit::http::HttpResponse;
use larder_testkit::s3_model::{ModelBounds, ModelCounts, ModelPlan, ModelRequest, ModelServer, check_s3_model};
use larder_testkit::{VirtualClock, case_seeds, figure, unique_bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::support::{KEY, SECRET, admin};

/// Bytes under way between a client and its gateway.
const PIPE_BYTES: usize = 64 * 1024;
/// Time between two requests: a gateway orders the writes of a part by its own clock, which no two machines have to the microsecond.
const REQUEST_PAUSE: Duration = Duration::from_millis(2);
const BOUNDS: ModelBounds = ModelBounds { part_bytes_min: 2000, gateways: 2, bucket_prefix: "model" };
const PLAN: ModelPlan = ModelPlan { steps: 400, moves_time: true, kills: true };

/// The time of all runs of the gateways: that of the present runtime after the one before it began.
struct RunClock {
    begun: AtomicU64,
    run: Mutex<Instant>,
}

impl Clock for RunClock {
    fn now(&self) -> Timestamp {
        VirtualClock::BEGIN + self.begun.load(Ordering::Relaxed) + self.elapsed()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(1_000_000 + self.elapsed())
    }
}

impl RunClock {
    fn elapsed(&self) -> u64 {
        self.run.lock().elapsed().as_micros() as u64
    }
}

/// Two gateways, each with the work that a server does in the background. Their runtime is their process: with it they are killed.
struct ModelGateways {
    runtime: Option<Runtime>,
    clock: Arc<RunClock>,
    store: MemoryStore,
    ring: Arc<KeyRing>,
    gateways: Vec<Arc<Objects>>,
    services: Vec<S3Service>,
    actors: u64,
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime can be made")
}

impl ModelGateways {
    fn start() -> Self {
        let runtime = paused();
        let begin = runtime.block_on(async { Instant::now() });
        let clock = Arc::new(RunClock { begun: AtomicU64::new(0), run: Mutex::new(begin) });
        let store = MemoryStore::new(Arc::clone(&clock) as _);
        let ring = Arc::new(KeyRing::in_memory());
        let (gateways, services) = (Vec::new(), Vec::new());
        let mut server = Self { runtime: Some(runtime), clock, store, ring, gateways, services, actors: 0 };
        server.start_gateways();
        server
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the gateways run")
    }

    fn start_gateways(&mut self) {
        for _ in 0..BOUNDS.gateways {
            self.actors += 1;
            let store = Arc::new(self.store.as_other_process());
            let ports = GatewayPorts {
                store: store.clone(),
                blobs: store,
                clock: Arc::clone(&self.clock) as _,
                actor: ActorId(self.actors),
                random: unique_bytes,
                engine: Arc::new("memory"),
                scripts: None,
                audit: None,
                certificate: None,
                webhooks: None,
                product: S3Catalogue::empty(),
            };
            let config = Config { node: format!("g{}", self.actors), single_process: false, ..Config::default() };
            let of_s3 = ObjectsConfig {
                single_process: false,
                part_bytes_min: BOUNDS.part_bytes_min as u64,
                key_ring: Arc::clone(&self.ring),
                ..ObjectsConfig::default()
            };
            let objects = self.runtime().block_on(async {
                let objects = Objects::new(Core::start(ports, config).await.unwrap(), Vec::new(), of_s3);
                objects.users.ensure_admin(Some((KEY.into(), SECRET.into()))).await.unwrap();
                objects.lock_clock.tick().await.unwrap();
                objects
            });
            let settings = S3Settings { takes_plain_customer_keys: true, ..S3Settings::default() };
            self.services.push(S3Service::new(Arc::clone(&objects), settings));
            self.gateways.push(objects);
        }
    }
}

impl ModelServer for ModelGateways {
    fn answer(&mut self, gateway: usize, request: &ModelRequest) -> HttpResponse {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_micros(self.now()));
        let request = request.signed(&admin(), &date).header("Connection", "close");
        let is_head = request.head().starts_with("HEAD ");
        let bytes = self.runtime().block_on(async {
            tokio::time::sleep(REQUEST_PAUSE).await;
            exchange(self.services[gateway].clone(), request.bytes()).await
        });
        HttpResponse::read(&bytes, if is_head { "HEAD" } else { "GET" }).expect("an answer")
    }

    fn now(&self) -> u64 {
        let _runtime = self.runtime().enter();
        self.clock.now().0
    }

    fn wait(&mut self, time: Duration) {
        self.runtime().block_on(async {
            let end = Instant::now() + time;
            while Instant::now() < end {
                tokio::time::sleep(Duration::from_secs(60).min(end - Instant::now())).await;
                for gateway in &self.gateways {
                    gateway.lock_clock.tick().await.unwrap();
                }
            }
            self.gateways[0].sweeper.sweep().await.unwrap();
        });
    }

    fn restart(&mut self, standstill: Duration) {
        let elapsed = self.runtime().block_on(async { self.clock.elapsed() });
        self.gateways.clear();
        self.services.clear();
        drop(self.runtime.take());
        self.clock.begun.fetch_add(elapsed + standstill.as_micros() as u64, Ordering::Relaxed);
        let runtime = paused();
        *self.clock.run.lock() = runtime.block_on(async { Instant::now() });
        self.runtime = Some(runtime);
        self.start_gateways();
    }

    fn expire(&mut self) {
        self.runtime().block_on(async {
            loop {
                let pass = self.gateways[0].lifecycle.run().await.unwrap();
                assert_eq!(pass.failed, 0, "{pass:?}");
                if pass == larder_s3::lifecycle::LifecyclePass::default() {
                    break;
                }
            }
        });
    }
}

/// The bytes of the answer to a request on a connection of its own.
async fn exchange(service: S3Service, request: Vec<u8>) -> Vec<u8> {
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    let account = MemoryBudget::new(1 << 30, 0).account("s3", IpAddr::V4(Ipv4Addr::LOCALHOST));
    let answering = async move {
        let source = RequestSource::plain(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let answer = service_fn(|request| async {
            Ok::<_, std::convert::Infallible>(service.handle(&Requester::new(source, &account), request).await)
        });
        let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), answer).await;
    };
    let asking = async move {
        let (mut reader, mut writer) = tokio::io::split(client);
        let mut bytes = Vec::new();
        // A gateway may answer before it has read a body that it refuses.
        let send = async {
            let _ = writer.write_all(&request).await;
        };
        let receive = async { reader.read_to_end(&mut bytes).await.expect("an answer") };
        tokio::join!(send, receive);
        bytes
    };
    let (_, bytes) = tokio::join!(answering, asking);
    bytes
}

/// Runs the seeds of one half: each half is a test, so that two cores share them.
fn check(half: u64) {
    let mut counts = ModelCounts::default();
    for seed in case_seeds(50, 2_500).filter(|seed| seed % 2 == half) {
        counts.add(&check_s3_model(ModelGateways::start, BOUNDS, PLAN, seed));
    }
    figure("S3 as its model, in memory", &format!("{} requests through two gateways", counts.requests()));
    // A case of its own, or a few, may miss some.
    let is_whole = counts.requests() > 20 * PLAN.steps as u64;
    assert!(!is_whole || counts.unserved(PLAN).is_empty(), "never served: {:?} of {counts:?}", counts.unserved(PLAN));
}

#[test]
fn random_requests_through_two_gateways_answer_as_the_model_of_s3() {
    check(0);
}

#[test]
fn random_requests_of_odd_seeds_answer_as_the_model_of_s3() {
    check(1);
}
