//! All shards of the process: started, told of each new image, stopped.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::core::Shard;
use super::mailbox::{Address, Inbox, Router, mailboxes};
use super::messages::{Answer, Request, ShardDisk};
use super::partitions::{Found, Partitions};
use crate::base::ShardId;
use crate::base::limits::{INDEX_CACHE_BYTES, OPEN_SEGMENTS_PER_PROCESS_MAX};
use crate::cluster::MetadataImage;
use crate::config::BrokerConfig;
use crate::io::disk::Disk;
use crate::io::executor::{self, Beat, ExecutorError, ExecutorHandle, ExecutorSettings, Task};
use crate::io::local::Semaphore;
use crate::io::real_disk::RealDisk;
use crate::io::socket::{BoundListener, Listener, Socket};
use crate::net::{FrameError, Service, serve_connection};
use crate::observability::ShardMetrics;
use crate::storage::CoreStorage;

/// What the shards of a process are started with.
pub struct ShardsSetup {
    pub config: Arc<BrokerConfig>,
    /// One shard runs on each.
    pub cores: Vec<usize>,
    pub image: Arc<MetadataImage>,
    /// One for each shard.
    pub listeners: Vec<BoundListener>,
    pub metrics: Vec<Arc<ShardMetrics>>,
    /// A file of the data directory that is not empty.
    pub probe_file: PathBuf,
}

/// The running shards.
pub struct Shards {
    addresses: Vec<Address>,
    handles: Vec<ExecutorHandle<Result<(), String>>>,
    ready: flume::Receiver<()>,
}

/// Reaches all shards from another thread.
#[derive(Clone)]
pub struct ShardsHandle(Vec<Address>);

impl ShardsHandle {
    /// Gives all shards a new image; resolves when all of them act on it.
    pub async fn publish(&self, image: Arc<MetadataImage>) {
        let (applied, heard) = flume::bounded(self.0.len());
        for address in &self.0 {
            let request = Request::Image {
                image: Arc::clone(&image),
                applied: applied.clone(),
            };
            // A shard that is gone has nothing to act on.
            let _ = address.send_control(request).await;
        }
        drop(applied);
        while heard.recv_async().await.is_ok() {}
    }

    /// Has all shards accept connections; resolves when they do, or with false when one of them
    /// ended.
    pub async fn start(&self) -> bool {
        self.ask_all(|saved| Request::Save { saved }).await
            && self.ask_all(|started| Request::Start { started }).await
    }

    /// True where all shards answered.
    async fn ask_all(&self, request: impl Fn(flume::Sender<ShardId>) -> Request) -> bool {
        let (answers, heard) = flume::bounded(self.0.len());
        for address in &self.0 {
            let _ = address.send_control(request(answers.clone())).await;
        }
        drop(answers);
        let mut count = 0;
        while heard.recv_async().await.is_ok() {
            count += 1;
        }
        count == self.0.len()
    }

    /// Asks all shards to flush and end.
    pub async fn stop(&self) {
        for address in &self.0 {
            let _ = address.send_control(Request::Stop).await;
        }
    }
}

impl Shards {
    /// Starts one executor a core. `make_service` is called on each.
    ///
    /// # Errors
    /// A core cannot be used.
    pub fn spawn<S: Service<<ShardDisk as Disk>::File>>(
        setup: ShardsSetup,
        make_service: impl Fn(Rc<Shard>) -> S + Clone + Send + 'static,
    ) -> Result<Self, ExecutorError> {
        let cores = setup.cores;
        let (addresses, inboxes) = mailboxes(cores.len());
        let (ready_sender, ready) = flume::bounded(cores.len());
        let mut handles = Vec::new();
        let parts = cores
            .iter()
            .zip(inboxes)
            .zip(setup.listeners)
            .zip(setup.metrics);
        for ((((core, inbox), listener), metrics), shard) in parts.zip(0..) {
            let heartbeat_metrics = Arc::clone(&metrics);
            let settings = ExecutorSettings {
                name: format!("shard-{shard}"),
                core: *core,
                first_file: Some(setup.probe_file.clone()),
                on_heartbeat: Some(Box::new(move |beat: Beat| {
                    heartbeat_metrics.heartbeat(beat.late_by);
                })),
            };
            let seed = ShardSeed {
                shard: ShardId(shard),
                config: Arc::clone(&setup.config),
                image: Arc::clone(&setup.image),
                addresses: addresses.clone(),
                inbox,
                listener,
                metrics,
                ready: ready_sender.clone(),
            };
            let make_service = make_service.clone();
            handles.push(executor::spawn_pinned(settings, move || {
                seed.run(make_service)
            })?);
        }
        Ok(Self {
            addresses,
            handles,
            ready,
        })
    }

    pub fn handle(&self) -> ShardsHandle {
        ShardsHandle(self.addresses.clone())
    }

    /// Blocks until every shard has opened its partitions; false if one of them ended before.
    pub fn wait_ready(&self) -> bool {
        (0..self.handles.len()).all(|_| self.ready.recv().is_ok())
    }

    /// Blocks until all shards have ended.
    ///
    /// # Errors
    /// The first failure, in one line.
    pub fn join(self) -> Result<(), String> {
        let mut result = Ok(());
        for handle in self.handles {
            let ended = handle
                .join()
                .map_err(|error| error.to_string())
                .and_then(|ended| ended);
            result = result.and(ended);
        }
        result
    }
}

/// What one shard is made of, on its way to its executor.
struct ShardSeed {
    shard: ShardId,
    config: Arc<BrokerConfig>,
    image: Arc<MetadataImage>,
    addresses: Vec<Address>,
    inbox: Inbox,
    listener: BoundListener,
    metrics: Arc<ShardMetrics>,
    ready: flume::Sender<()>,
}

impl ShardSeed {
    async fn run<S: Service<<ShardDisk as Disk>::File>>(
        self,
        make_service: impl Fn(Rc<Shard>) -> S,
    ) -> Result<(), String> {
        let config = Arc::clone(&self.config);
        let disk = RealDisk::probed_elsewhere();
        let shard_count = u16::try_from(self.addresses.len()).map_err(|error| error.to_string())?;
        let mut found = Found::read(&disk, &config.data_dir, self.shard, shard_count).await?;
        let storage = CoreStorage::new(
            disk.clone(),
            Rc::new(|task| executor::spawn_local(task).detach()),
            config.tail_cache_bytes,
            INDEX_CACHE_BYTES,
            OPEN_SEGMENTS_PER_PROCESS_MAX / usize::from(shard_count.max(1)),
        );
        let router = Rc::new(Router::new(self.shard, self.addresses));
        let partitions = Partitions::new(
            storage,
            Arc::clone(&config),
            Rc::clone(&router),
            Arc::clone(&self.metrics),
            found.generation() + 1,
        );
        partitions.apply(&self.image, &mut found).await;
        partitions.quarantine(found.logged).await?;
        let shard = Rc::new(Shard::new(
            Rc::clone(&router),
            self.image,
            partitions.clone(),
            self.metrics,
            config.network_in_bytes,
        ));
        let service = Rc::new(make_service(Rc::clone(&shard)));
        let answers = executor::spawn_local(take_answers(router, self.inbox.answers));
        let _ = self.ready.send_async(()).await;
        drop(self.ready);
        let mut host = Host {
            connections: Connections::new(Rc::clone(&shard), service, &config),
            shard,
            config,
            listener: Some(self.listener),
            background: Vec::new(),
            image_turn: Semaphore::new(1),
        };
        let ended = host.take_requests(self.inbox.requests).await;
        host.stop().await;
        answers.cancel().await;
        ended
    }
}

async fn take_answers(router: Rc<Router>, answers: flume::Receiver<Answer>) {
    while let Ok(answer) = answers.recv_async().await {
        router.accept(answer);
        // Whatever came in the meantime, without going to sleep between.
        while let Ok(answer) = answers.try_recv() {
            router.accept(answer);
        }
        executor::yield_if_needed().await;
    }
}

/// Carries out what comes into the mailbox.
struct Host<S> {
    shard: Rc<Shard>,
    config: Arc<BrokerConfig>,
    connections: Rc<Connections<S>>,
    listener: Option<BoundListener>,
    background: Vec<Task<()>>,
    /// One image is applied at a time; the shard ends only between two.
    image_turn: Semaphore,
}

impl<S: Service<<ShardDisk as Disk>::File>> Host<S> {
    async fn take_requests(&mut self, requests: flume::Receiver<Request>) -> Result<(), String> {
        while let Ok(request) = requests.recv_async().await {
            match request {
                Request::Call {
                    from,
                    call_id,
                    call,
                } => {
                    let started = self.shard.start(call);
                    let address = self.shard.router().address(from).clone();
                    executor::spawn_local(async move {
                        if let Ok(reply) = started.finish().await {
                            address.answer(Answer::Reply { call_id, reply });
                        }
                    })
                    .detach();
                }
                Request::Image { image, applied } => {
                    let shard = Rc::clone(&self.shard);
                    let turn = self.image_turn.acquire(1);
                    executor::spawn_local(async move {
                        let _turn = turn.await;
                        shard.apply_image(image).await;
                        let _ = applied.send_async(shard.id()).await;
                    })
                    .detach();
                }
                Request::Save { saved } => {
                    let partitions = self.shard.partitions().clone();
                    partitions.save_first_checkpoint().await.map_err(|error| {
                        let data_dir = self.config.data_dir.display();
                        format!("cannot write a checkpoint in {data_dir}: {error}")
                    })?;
                    let _ = saved.send_async(self.shard.id()).await;
                }
                Request::Start { started } => {
                    self.start().await?;
                    let _ = started.send_async(self.shard.id()).await;
                }
                Request::Stop => return Ok(()),
            }
            executor::yield_if_needed().await;
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), String> {
        let partitions = self.shard.partitions().clone();
        partitions.start_commit_log().await.map_err(|error| {
            format!(
                "cannot make the commit log of core {} in {}: {error}; free some space, or make it smaller with ringmain.commit.log.bytes",
                self.shard.id(),
                self.config.data_dir.display()
            )
        })?;
        if let Some(listener) = self.listener.take() {
            let accept = accept(listener.into_listener(), Rc::clone(&self.connections));
            self.background.push(executor::spawn_local(accept));
        }
        let upkeep = partitions.keep_up(Arc::clone(&self.config));
        self.background.push(executor::spawn_local(upkeep));
        Ok(())
    }

    async fn stop(self) {
        for task in self.background {
            task.cancel().await;
        }
        self.connections.close_all();
        let _turn = self.image_turn.acquire(1).await;
        if let Err(error) = self.shard.partitions().close().await {
            warn!(%error, "cannot write the last checkpoint; the next start will scan more");
        }
        info!(shard = %self.shard.id(), "stopped");
    }
}

/// The connections that this shard accepted.
struct Connections<S> {
    shard: Rc<Shard>,
    service: Rc<S>,
    frame_bytes_max: usize,
    open: std::cell::RefCell<slab::Slab<Rc<Socket>>>,
}

impl<S: Service<<ShardDisk as Disk>::File>> Connections<S> {
    fn new(shard: Rc<Shard>, service: Rc<S>, config: &BrokerConfig) -> Rc<Self> {
        Rc::new(Self {
            shard,
            service,
            frame_bytes_max: config.socket_request_max_bytes,
            open: std::cell::RefCell::default(),
        })
    }

    async fn serve(self: Rc<Self>, socket: Socket) {
        let socket = Rc::new(socket);
        let place = self.open.borrow_mut().insert(Rc::clone(&socket));
        self.shard.metrics().connection_opened();
        let peer = socket.peer();
        let budget = self.shard.network_budget().clone();
        let service = Rc::clone(&self.service);
        let unsent = Rc::clone(self.shard.unsent());
        let end = serve_connection(socket, service, self.frame_bytes_max, budget, unsent).await;
        match end {
            FrameError::Closed => debug!(%peer, "connection closed"),
            end => info!(%peer, reason = %end, "closed a connection"),
        }
        self.open.borrow_mut().remove(place);
        self.shard.metrics().connection_closed();
    }

    fn close_all(&self) {
        for (_, socket) in self.open.borrow().iter() {
            socket.shutdown();
        }
    }
}

async fn accept<S: Service<<ShardDisk as Disk>::File>>(
    listener: Listener,
    connections: Rc<Connections<S>>,
) {
    /// After a failure such as EMFILE: time for connections to close.
    const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);
    loop {
        match listener.accept().await {
            Ok(socket) => {
                executor::spawn_local(Rc::clone(&connections).serve(socket)).detach();
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => {
                warn!(%error, "cannot accept a connection; raise the limit of open files (ulimit -n)");
                executor::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}
