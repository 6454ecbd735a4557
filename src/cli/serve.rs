//! `ringmain serve`: puts the parts of the broker together and runs them.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use clap::Args;
use tracing::{info, warn};

use super::Failure;
use crate::admin::{self, AdminState};
use crate::base::TopicId;
use crate::broker::Broker;
use crate::broker::dispatch::BrokerService;
use crate::cluster::control::{self, ControlReceiver};
use crate::cluster::identity::DataDirectory;
use crate::cluster::store::LocalMetadataStore;
use crate::cluster::{
    BrokerImage, Command, ControlHandle, ControllerContext, Defaults, MetadataImage,
    control_channel,
};
use crate::config::{
    BrokerConfig, ConfigError, Endpoint, Entries, Overrides, TopicDefaults, alter, format_cores,
};
use crate::io::blocks;
use crate::io::probe;
use crate::io::socket::{BoundListener, probe_address};
use crate::observability::{MetricsRegistry, logging};
use crate::shard::sweep::sweep_data_dir;
use crate::shard::{Shards, ShardsHandle, ShardsSetup, broker_config};

/// Run the broker.
///
/// Prints one line to stdout when clients may connect; logs go to stderr (level in RINGMAIN_LOG:
/// error, warn, info, debug). SIGTERM and SIGINT stop it cleanly.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringmain serve
  ringmain serve --data-dir /var/lib/ringmain --listen 10.0.0.5:9092
  ringmain serve --config broker.toml --cores 0-3")]
pub struct ServeArgs {
    /// TOML file whose keys are Kafka's names, such as log.segment.bytes = 1073741824
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where all data is kept [default: ./ringmain-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where clients connect; port 0 picks one [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where the admin HTTP listens (/metrics, /healthz, /readyz) [default: 127.0.0.1:9644]
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// Cores to run on, one shard each: `all`, or a list such as 0,2-3 [default: all]
    #[arg(long, value_name = "LIST")]
    cores: Option<String>,
}

pub fn run(args: ServeArgs) -> Result<(), Failure> {
    logging::init();
    let overrides = Overrides {
        config: args.config,
        data_dir: args.data_dir,
        listen: args.listen,
        admin: args.admin,
        cores: args.cores,
    };
    let available: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect();
    let (config, warnings) = BrokerConfig::load(overrides).map_err(one_line)?;
    for warning in warnings {
        warn!("{warning}");
    }
    let cores = config
        .cores
        .resolve(&available)
        .map_err(|error| Failure::usage(format!("`ringmain.cores`: {error}")))?;
    probe::raise_open_files_limit();
    blocks::allow_advised_huge_pages();
    probe::probe_io_uring().map_err(Failure::run)?;
    Node::open(config, cores)?.run()
}

/// All that is wrong with the configuration.
fn one_line(error: ConfigError) -> Failure {
    let problems: Vec<String> = error.problems.iter().map(ToString::to_string).collect();
    Failure::usage(problems.join("; "))
}

/// The address to bind. `key` is the setting that the endpoint came from.
fn resolve(endpoint: &Endpoint, key: &str) -> Result<SocketAddr, Failure> {
    endpoint.resolve().map_err(|error| {
        Failure::usage(format!(
            "`{key}` must be HOST:PORT of this machine, not `{endpoint}` ({error})"
        ))
    })
}

/// A broker whose directory is held and whose ports are bound, not yet running.
struct Node {
    config: Arc<BrokerConfig>,
    /// Ascending.
    cores: Vec<usize>,
    directory: DataDirectory,
    store: LocalMetadataStore,
    image: MetadataImage,
    kafka: SocketAddr,
    listeners: Vec<BoundListener>,
    admin: std::net::TcpListener,
}

impl Node {
    fn open(config: BrokerConfig, cores: Vec<usize>) -> Result<Self, Failure> {
        let listen = resolve(&config.listen, "listeners")?;
        let admin = resolve(&config.admin, "ringmain.admin.listener")?;
        let directory =
            DataDirectory::open(&config.data_dir, config.node_id).map_err(Failure::run)?;
        let cluster_id = &directory.identity().cluster_id;
        let (store, image) =
            LocalMetadataStore::open(&config.data_dir, cluster_id).map_err(Failure::run)?;
        sweep_data_dir(&config.data_dir, &image).map_err(|error| {
            Failure::run(format!(
                "cannot read the data directory {}: {error}",
                config.data_dir.display()
            ))
        })?;
        let cannot_listen = |address: SocketAddr, option: &str, error: std::io::Error| {
            Failure::run(format!(
                "cannot listen on {address}: {error}; stop what uses it, or choose another with {option}"
            ))
        };
        let kafka =
            probe_address(listen).map_err(|error| cannot_listen(listen, "--listen", error))?;
        let listeners = cores
            .iter()
            .map(|_| BoundListener::bind(kafka))
            .collect::<Result<_, _>>()
            .map_err(|error| cannot_listen(kafka, "--listen", error))?;
        let admin = std::net::TcpListener::bind(admin)
            .map_err(|error| cannot_listen(admin, "--admin", error))?;
        let config = Arc::new(config);
        Ok(Self {
            config,
            cores,
            directory,
            store,
            image,
            kafka,
            listeners,
            admin,
        })
    }

    fn run(self) -> Result<(), Failure> {
        let registry = Arc::new(MetricsRegistry::new(&self.cores));
        let (control, receiver) = control_channel();
        let service_control = control.clone();
        let setup = ShardsSetup {
            config: Arc::clone(&self.config),
            cores: self.cores.clone(),
            image: Arc::new(self.image.clone()),
            listeners: self.listeners,
            metrics: registry.shards().to_vec(),
            probe_file: self.config.data_dir.join("ringmain.json"),
        };
        let shards = Shards::spawn(setup, move |shard| {
            let broker = Broker::new(shard, service_control.clone());
            BrokerService(Rc::new(broker))
        })
        .map_err(Failure::run)?;
        let admin_address = self.admin.local_addr().map_err(Failure::run)?;
        let state = AdminState::new(
            registry,
            &self.config,
            &self.directory.identity().cluster_id,
        );
        let control_thread = ControlThread {
            store: self.store,
            image: self.image,
            receiver,
            shards: shards.handle(),
            admin: self.admin,
            state: state.clone(),
            config: Arc::clone(&self.config),
        };
        let control_thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || control_thread.run())
            .map_err(Failure::run)?;
        if shards.wait_ready() {
            register(&self.config, self.kafka, control)?;
            if block_on(shards.handle().start()) {
                state.set_ready();
                announce(&self.config, &self.cores, self.kafka, admin_address);
            } else {
                block_on(shards.handle().stop());
            }
        } else {
            drop(control);
            block_on(shards.handle().stop());
        }
        let result = shards.join();
        info!("all shards have ended");
        drop(control_thread);
        drop(self.directory);
        result.map_err(Failure::run)
    }
}

/// Makes the broker part of its cluster's metadata.
fn register(
    config: &BrokerConfig,
    kafka: SocketAddr,
    control: ControlHandle,
) -> Result<(), Failure> {
    let (host, port) = match &config.advertised {
        // A port that was picked at the start is what clients must be told.
        Some(Endpoint { host, port: 0 }) => (host.clone(), kafka.port()),
        Some(Endpoint { host, port }) => (host.clone(), *port),
        None => (kafka.ip().to_string(), kafka.port()),
    };
    let broker = BrokerImage {
        id: config.node_id,
        host,
        port,
        rack: config.rack.clone(),
        fenced: false,
    };
    block_on(control.submit(Command::RegisterBroker(broker))).map_err(Failure::run)?;
    Ok(())
}

/// The one line on stdout.
fn announce(config: &BrokerConfig, cores: &[usize], kafka: SocketAddr, admin: SocketAddr) {
    let mut stdout = std::io::stdout().lock();
    let line = format!(
        "ringmain ready kafka={kafka} admin={admin} node={} cores={} data={}",
        config.node_id,
        format_cores(cores),
        config.data_dir.display()
    );
    // Nobody may be listening: that is no reason to stop.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    futures_lite::future::block_on(future)
}

/// The thread that is bound to no core: metadata, admin HTTP, signals.
struct ControlThread {
    store: LocalMetadataStore,
    image: MetadataImage,
    receiver: ControlReceiver,
    shards: ShardsHandle,
    admin: std::net::TcpListener,
    state: AdminState,
    config: Arc<BrokerConfig>,
}

impl ControlThread {
    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("the kernel gives the control thread an epoll instance");
        runtime.block_on(async {
            let stop = self.shards.clone();
            let stopping = self.state.clone();
            tokio::spawn(async move {
                wait_for_signal().await;
                stopping.set_stopping();
                info!("stopping: flushing and closing all partitions");
                stop.stop().await;
            });
            tokio::spawn(admin::serve(self.admin, self.state.clone()));
            let defaults = InForce::new(Arc::clone(&self.config), &self.image);
            let context = controller_context(&self.config, defaults.clone());
            let shards = self.shards;
            let state = self.state;
            state.set_image(Arc::new(self.image.clone()));
            let publish = async |image: Arc<MetadataImage>| {
                defaults.apply(&image);
                shards.publish(Arc::clone(&image)).await;
                state.set_image(image);
            };
            let end = control::run(self.store, self.image, self.receiver, context, publish).await;
            if let Err(error) = end {
                eprintln!("ringmain: the metadata cannot be kept: {error}");
                std::process::exit(1);
            }
        });
    }
}

async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let handlers = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    match handlers {
        Ok((mut terminate, mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        Err(error) => {
            warn!(%error, "signals cannot be handled: only SIGKILL will end the broker");
            std::future::pending::<()>().await;
        }
    }
}

/// What topics have by default, as the newest image says; clones are the same.
#[derive(Clone)]
struct InForce {
    config: Arc<BrokerConfig>,
    topic_defaults: Arc<Mutex<TopicDefaults>>,
}

impl InForce {
    fn new(config: Arc<BrokerConfig>, image: &MetadataImage) -> Self {
        let topic_defaults = Arc::new(Mutex::new(config.topic_defaults.clone()));
        let this = Self {
            config,
            topic_defaults,
        };
        this.apply(image);
        this
    }

    fn apply(&self, image: &MetadataImage) {
        // Settings that no longer fit each other are reported by the shards.
        if let Ok(config) = broker_config(image, &self.config) {
            *self.lock() = config.topic_defaults;
        }
    }

    fn lock(&self) -> MutexGuard<'_, TopicDefaults> {
        self.topic_defaults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn controller_context(config: &BrokerConfig, in_force: InForce) -> ControllerContext {
    let validate_topic = move |overrides: &Entries| {
        let given: Vec<_> = overrides
            .iter()
            .map(|(name, text)| (name.clone(), Some(text.clone())))
            .collect();
        let altered = alter::create_topic(&in_force.lock(), &given);
        for warning in altered.map_err(|error| error.to_string())?.warnings {
            warn!("{warning}");
        }
        Ok(())
    };
    ControllerContext {
        defaults: Defaults {
            num_partitions: config.num_partitions,
            replication_factor: config.default_replication_factor,
            ..Defaults::default()
        },
        new_topic_id: Box::new(TopicId::random),
        validate_topic_configs: Box::new(validate_topic),
        // An edit of a broker's settings checks them itself: it knows which broker's they are.
        validate_broker_configs: Box::new(|_| Ok(())),
    }
}
