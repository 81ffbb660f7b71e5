//! Random requests from outside, compared with the model of the test kit: over the embedded engine with a server that is killed in
//! between, over Cassandra through two gateways. `LARDER_TEST_SCALE=soak` tries a hundred seeds.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_testkit::s3_model::{ModelBounds, ModelCounts, ModelPlan, ModelRequest, ModelServer, check_s3_model};
use larder_testkit::{case_seeds, figure};

use crate::harness::{Home, HttpResponse, LarderNode, S3Client, TestEngine};

/// Time is the machine's: nothing of it can be moved.
const PLAN: ModelPlan = ModelPlan { steps: 500, moves_time: false, kills: true };

/// Servers of one store.
struct ModelNodes {
    nodes: Vec<LarderNode>,
    clients: Vec<S3Client>,
}

impl ModelNodes {
    fn start(count: usize) -> Self {
        let home = Home::new();
        let ring = home.path().join("master-keys");
        fs::write(&ring, STANDARD.encode([7; 32]) + "\n").expect("a file can be written");
        // Gateways of one store share their master keys.
        let args =
            ["--s3", "127.0.0.1:0", "--s3-ssec-plain", "--encryption-keys", ring.to_str().expect("a path in UTF-8")];
        let mut nodes = vec![LarderNode::start_in(home, &args)];
        for number in 1..count {
            let name = format!("model{number}@h");
            let more = nodes[0].beside(&[&args[..], &["--node-name", &name]].concat());
            nodes.push(more);
        }
        let clients = nodes.iter().map(LarderNode::s3_admin).collect();
        Self { nodes, clients }
    }
}

impl ModelServer for ModelNodes {
    fn answer(&mut self, gateway: usize, request: &ModelRequest) -> HttpResponse {
        let date = httpdate::fmt_http_date(SystemTime::now());
        self.clients[gateway].send(|signer| request.signed(signer, &date))
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_micros() as u64
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn restart(&mut self, standstill: Duration) {
        self.nodes.iter_mut().for_each(LarderNode::kill);
        std::thread::sleep(standstill);
        self.nodes.iter_mut().for_each(LarderNode::restart);
        self.clients = self.nodes.iter().map(LarderNode::s3_admin).collect();
    }

    fn expire(&mut self) {
        unreachable!("no plan without moved time carries out the lifecycle");
    }
}

#[test]
fn random_requests_answer_as_the_model_of_s3_before_and_after_kills() {
    let gateways = TestEngine::scaled(1, 2);
    let bounds = ModelBounds { part_bytes_min: 5 << 20, gateways, bucket_prefix: "model" };
    let mut counts = ModelCounts::default();
    for seed in case_seeds(1, 100) {
        counts.add(&check_s3_model(|| ModelNodes::start(gateways), bounds, PLAN, seed));
    }
    figure("S3 as its model, from outside", &format!("{} requests", counts.requests()));
}
