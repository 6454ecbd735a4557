//! `ringmain serve`: puts the parts of the broker together and runs them.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use clap::Args;
use tracing::{info, warn};

use super::Failure;
use crate::admin::{self, AdminState};
use crate::base::{NodeId, TopicId};
use crate::broker::Broker;
use crate::broker::dispatch::BrokerService;
use crate::cluster::control::{self, ControlReceiver};
use crate::cluster::identity::DataDirectory;
use crate::cluster::store::LocalMetadataStore;
use crate::cluster::{
    BrokerImage, Command, ControlHandle, ControllerContext, Defaults, MetadataImage,
    control_channel,
};
use crate::config::alter::{self, Scope};
use crate::config::{BrokerConfig, Overrides, cores};
use crate::io::probe;
use crate::io::socket::{BoundListener, probe_address};
use crate::observability::{MetricsRegistry, logging};
use crate::shard::sweep::sweep_data_dir;
use crate::shard::{Shards, ShardsHandle, ShardsSetup};

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
    let (config, warnings) = BrokerConfig::load(&overrides, &available).map_err(Failure::usage)?;
    for warning in warnings {
        warn!("{warning}");
    }
    probe::raise_open_files_limit();
    probe::probe_io_uring().map_err(Failure::run)?;
    Node::open(config)?.run()
}

/// A broker whose directory is held and whose ports are bound, not yet running.
struct Node {
    config: Arc<BrokerConfig>,
    directory: DataDirectory,
    store: LocalMetadataStore,
    image: MetadataImage,
    kafka: SocketAddr,
    listeners: Vec<BoundListener>,
    admin: std::net::TcpListener,
}

impl Node {
    fn open(config: BrokerConfig) -> Result<Self, Failure> {
        let node_id = NodeId(config.node_id);
        let directory = DataDirectory::open(&config.data_dir, node_id).map_err(Failure::run)?;
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
        let kafka = probe_address(config.listen)
            .map_err(|error| cannot_listen(config.listen, "--listen", error))?;
        let listeners = config
            .cores
            .iter()
            .map(|_| BoundListener::bind(kafka))
            .collect::<Result<_, _>>()
            .map_err(|error| cannot_listen(kafka, "--listen", error))?;
        let admin = std::net::TcpListener::bind(config.admin)
            .map_err(|error| cannot_listen(config.admin, "--admin", error))?;
        let config = Arc::new(config);
        Ok(Self {
            config,
            directory,
            store,
            image,
            kafka,
            listeners,
            admin,
        })
    }

    fn run(self) -> Result<(), Failure> {
        let registry = Arc::new(MetricsRegistry::new(&self.config.cores));
        let (control, receiver) = control_channel();
        let service_control = control.clone();
        let service_config = Arc::clone(&self.config);
        let setup = ShardsSetup {
            config: Arc::clone(&self.config),
            image: Arc::new(self.image.clone()),
            listeners: self.listeners,
            metrics: registry.shards().to_vec(),
            probe_file: self.config.data_dir.join("ringmain.json"),
        };
        let shards = Shards::spawn(setup, move |shard| {
            let broker = Broker::new(shard, service_control.clone(), Arc::clone(&service_config));
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
            block_on(shards.handle().start());
            state.set_ready();
            announce(&self.config, self.kafka, admin_address);
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
        Some((host, 0)) => (host.clone(), kafka.port()),
        Some((host, port)) => (host.clone(), *port),
        None => (kafka.ip().to_string(), kafka.port()),
    };
    let broker = BrokerImage {
        id: NodeId(config.node_id),
        host,
        port,
        rack: None,
        fenced: false,
    };
    block_on(control.submit(Command::RegisterBroker(broker))).map_err(Failure::run)?;
    Ok(())
}

/// The one line on stdout.
fn announce(config: &BrokerConfig, kafka: SocketAddr, admin: SocketAddr) {
    let mut stdout = std::io::stdout().lock();
    let line = format!(
        "ringmain ready kafka={kafka} admin={admin} node={} cores={} data={}",
        config.node_id,
        cores::print(&config.cores),
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
            tokio::spawn(async move {
                wait_for_signal().await;
                info!("stopping: flushing and closing all partitions");
                stop.stop().await;
            });
            tokio::spawn(admin::serve(self.admin, self.state.clone()));
            let context = controller_context(&self.config);
            let shards = self.shards;
            let state = self.state;
            state.set_image(Arc::new(self.image.clone()));
            let publish = async |image: Arc<MetadataImage>| {
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

fn controller_context(config: &BrokerConfig) -> ControllerContext {
    let validate = |scope: Scope| {
        move |settings: &_| alter::validate(scope, settings).map_err(|error| error.to_string())
    };
    ControllerContext {
        defaults: Defaults {
            num_partitions: config.num_partitions,
            replication_factor: config.default_replication_factor,
            ..Defaults::default()
        },
        new_topic_id: Box::new(TopicId::random),
        validate_topic_configs: Box::new(validate(Scope::Topic)),
        validate_broker_configs: Box::new(validate(Scope::Broker)),
    }
}
