//! The controller: starts servers and children, injects the faults of the schedule, and reads the end.

// Progress is for the person who started the run.
#![allow(clippy::print_stdout)]

mod children;
mod disk;
mod finish;
mod lane;
mod link;
mod sample;
mod scene;
mod sql_server;

pub use sql_server::require_sql_server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::child::POOL;
use crate::history::{Event, Fault, Kind, Phase, Recorder, Run};
use crate::network::{Direction, Network};
use crate::options::{FaultKind, LEASE, ProviderName, RunOptions, leave_out};
use crate::schedule::{Planned, plan};
use crate::verdict::today;

use children::{Children, Slot};
use lane::Lane;
use link::Connection;
use sample::Sampling;
use scene::Scene;

/// Deliveries before a message fails.
const DELIVERY_LIMIT: u32 = 50;

/// The connections that a child may have at once: its pool, the listener, and two of the application's own.
const CONNECTIONS: u32 = POOL as u32 + 1 + 2;

/// How long a child may take to stop.
const STOP: Duration = Duration::from_secs(30);

/// How often the loop turns.
const TURN: Duration = Duration::from_millis(10);

/// How often the progress is shown.
const PROGRESS: Duration = Duration::from_secs(10);

/// Whether a kind works on messages until none is left.
fn works(kind: Kind) -> bool {
    matches!(kind, Kind::Worker | Kind::SqlWorker | Kind::HttpWorker | Kind::Scheduler)
}

/// How many children of each kind there are.
fn cast(provider: ProviderName) -> Vec<(Kind, u32)> {
    let mut cast = vec![
        (Kind::Producer, 2),
        (Kind::Worker, 2),
        (Kind::Scheduler, 2),
        (Kind::LeaseHolder, 2),
        (Kind::Receiver, 2),
        (Kind::Operator, 1),
        (Kind::FleetNode, 2),
        (Kind::HttpWorker, 1),
    ];
    // SQLite has no functions to call.
    if provider.has_server() {
        cast.push((Kind::SqlWorker, 1));
    }
    cast
}

/// The end of a fault of a child.
struct Ending {
    begun: Instant,
    at: Instant,
    child: String,
    process: String,
    number: u64,
    kind: FaultKind,
    hurt: Hurt,
}

/// What a fault that lasts has done to a child.
enum Hurt {
    /// The process is stopped.
    Paused,
    /// Answers arrive late. So many had before.
    Delayed(u64),
    /// A connection is cut in its next answer.
    Doomed(Arc<Connection>),
    /// Answers on a connection get lost.
    Silenced(Arc<Connection>),
    /// Packets between its host and the servers get lost.
    Lost(&'static [Direction]),
}

/// Whether packets of a child get lost already.
fn is_cut_off(endings: &[Ending], child: &str) -> bool {
    endings.iter().any(|ending| ending.child == child && matches!(ending.hurt, Hurt::Lost(_)))
}

/// Which packets a fault of the network drops.
fn directions(kind: FaultKind) -> &'static [Direction] {
    match kind {
        FaultKind::LostRequests => &[Direction::Requests],
        FaultKind::LostAnswers => &[Direction::Answers],
        _ => &[Direction::Requests, Direction::Answers],
    }
}

/// A run under way.
struct Controller {
    options: RunOptions,
    recorder: Arc<Recorder>,
    /// Before the scene: they are killed before their servers end.
    children: Children,
    scene: Arc<Scene>,
    endings: Vec<Ending>,
    interrupted: CancellationToken,
    /// How children ended that should not have.
    wrong: Vec<String>,
    faults: u64,
}

/// Makes a network for a run whose faults need one, and moves this thread to it. Leaves these faults out where that fails.
///
/// Call it while the process has only one thread.
pub fn enter_network(options: &mut RunOptions) -> Option<Network> {
    let mut faults = options.faults.iter().filter(|kind| kind.is_of_network());
    faults.next()?;
    let children: u32 = cast(options.provider).iter().map(|(_, count)| count).sum();
    match Network::enter(children as usize) {
        Ok(network) => Some(network),
        Err(error) => {
            for kind in FaultKind::ALL.into_iter().filter(|kind| kind.is_of_network()) {
                leave_out(options, kind, &format!("{error:#}"));
            }
            None
        }
    }
}

/// Runs all of it. The histories are in the directory then.
pub async fn run(mut options: RunOptions, git: String, network: Option<Network>) -> Result<()> {
    let interrupted = CancellationToken::new();
    watch_interrupts(&interrupted)?;
    std::fs::create_dir_all(options.out.join("logs")).context("cannot create the directory of the logs")?;
    let recorder = Arc::new(Recorder::open(&options.out, "controller", Kind::Controller, None)?);
    let children = Children::new(&cast(options.provider), &options, network.as_ref())?;
    let asked = options.faults.clone();
    let names: Vec<String> = children.slots.iter().map(|slot| slot.name.clone()).collect();
    let scene = Arc::new(Scene::start(&mut options, &names, network).await?);
    if options.strict && asked != options.faults {
        bail!("faults had to be left out, which --strict forbids");
    }
    scene.database().set_up().await.context("cannot set the database up")?;
    recorder.note(Event::Run(Run {
        seed: options.seed,
        date: today(),
        git,
        provider: options.provider.as_str().to_owned(),
        lease_ms: LEASE.as_millis() as u64,
        delivery_limit: DELIVERY_LIMIT,
        connections: CONNECTIONS,
        command: options.command(),
        minutes: options.minutes,
        planned: planned(&options),
        loses_tail: options.faults.contains(&FaultKind::FailoverLostTail),
    }));
    let mut controller = Controller {
        options,
        recorder,
        children,
        scene,
        endings: Vec::new(),
        interrupted,
        wrong: Vec::new(),
        faults: 0,
    };
    controller.inject().await?;
    controller.finish().await
}

/// How many faults of each kind are planned.
fn planned(options: &RunOptions) -> BTreeMap<String, u64> {
    let mut planned = BTreeMap::new();
    for fault in plan(options) {
        *planned.entry(fault.kind.as_str().to_owned()).or_default() += 1;
    }
    planned
}

fn watch_interrupts(interrupted: &CancellationToken) -> Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let (mut signal, interrupted) =
            (signal(kind).context("cannot watch for Ctrl-C")?, interrupted.clone());
        tokio::spawn(async move {
            signal.recv().await;
            interrupted.cancel();
        });
    }
    Ok(())
}

impl Controller {
    /// Runs the children under the faults of the schedule.
    async fn inject(&mut self) -> Result<()> {
        let planned = plan(&self.options);
        let (begun, length) = (Instant::now(), Duration::from_millis(self.options.length_ms()));
        println!("{} faults planned over {length:?} on {}", planned.len(), self.options.provider);
        let mut planned = planned.into_iter().peekable();
        let mut sampling = Sampling::start(&self.scene, &self.recorder);
        let lane = Lane::start(&self.scene, &self.recorder);
        let mut shown = Instant::now();
        while begun.elapsed() < length {
            sampling.disturb(lane.stops_all());
            self.turn(&mut sampling).await?;
            if lane.has_failed() {
                return lane.end().await;
            }
            let now_ms = begun.elapsed().as_millis() as u64;
            while let Some(fault) = planned.next_if(|fault| fault.at_ms <= now_ms) {
                self.begin(&fault, &lane)?;
            }
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                let seconds = begun.elapsed().as_secs();
                let faults = self.faults + lane.injected();
                println!("{seconds} s: {faults} faults, {} open messages", sampling.open());
            }
        }
        // Whatever still lasts ends here.
        for ending in std::mem::take(&mut self.endings) {
            self.end(&ending)?;
        }
        self.children.resume_all();
        lane.end().await
    }

    /// One turn of the loop: ends what is over, and starts what has died.
    async fn turn(&mut self, sampling: &mut Sampling) -> Result<()> {
        let due = self.endings.extract_if(.., |ending| ending.at <= Instant::now()).collect::<Vec<_>>();
        for ending in due {
            self.end(&ending)?;
        }
        self.tend()?;
        // A process whose one connection is silent or cut has others, and must go on.
        let hurt = |ending: &Ending| !matches!(ending.hurt, Hurt::Silenced(_) | Hurt::Doomed(_));
        let endings = &self.endings;
        sampling.look(&self.children, |slot| {
            endings.iter().any(|ending| ending.child == slot.name && hurt(ending))
        });
        let pause = tokio::time::sleep(TURN);
        if self.interrupted.run_until_cancelled(pause).await.is_none() {
            bail!("interrupted");
        }
        Ok(())
    }

    fn tend(&mut self) -> Result<()> {
        let scene = Arc::clone(&self.scene);
        let url = move |slot: &Slot| scene.url_for(&slot.name, slot.life);
        for ended in self.children.tend(url)? {
            if ended.struck {
                self.note(self.recorder.number(), FaultKind::KillAtStep, &ended.process, Phase::Begin);
                self.faults += 1;
            }
            self.wrong.extend(ended.wrong.map(|wrong| format!("{} {wrong}", ended.process)));
        }
        Ok(())
    }

    fn note(&self, number: u64, kind: FaultKind, target: &str, phase: Phase) {
        let fault = Fault { kind: kind.as_str().to_owned(), target: target.to_owned(), phase };
        self.recorder.write(number, Event::Fault(fault));
    }

    /// Begins a fault.
    fn begin(&mut self, planned: &Planned, lane: &Lane) -> Result<()> {
        let alive = self.children.alive(planned.pick);
        match planned.kind {
            FaultKind::Kill
            | FaultKind::Pause
            | FaultKind::ConnectionCut
            | FaultKind::ConnectionCutAnswer
            | FaultKind::ConnectionDelay
            | FaultKind::ConnectionHalfOpen
            | FaultKind::Partition
            | FaultKind::LostRequests
            | FaultKind::LostAnswers => {
                for index in alive {
                    if self.hit(index, planned)? {
                        break;
                    }
                }
            }
            FaultKind::KillMany => {
                for index in alive.into_iter().step_by(2) {
                    self.hit(index, planned)?;
                }
            }
            _ => lane.send(planned),
        }
        Ok(())
    }

    /// Begins a fault of a child. Whether the child could be hit: it may have no connection just now, or be hurt that way already.
    fn hit(&mut self, index: usize, planned: &Planned) -> Result<bool> {
        let slot = &mut self.children.slots[index];
        let (process, child, place) = (slot.process(), slot.name.clone(), slot.place);
        let link = self.scene.link(&child);
        let connection = link.and_then(|link| link.pick(planned.pick >> 32));
        let mut hurt = None;
        match (planned.kind, link, connection) {
            // A process that dies while it is paused is not resumed past its lease: most of them live on.
            (FaultKind::Kill | FaultKind::KillMany, ..)
                if slot.is_grown() && (!slot.paused || (planned.pick >> 40).is_multiple_of(8)) =>
            {
                slot.signal(Signal::KILL);
            }
            (FaultKind::Pause, ..) if slot.is_grown() && !slot.paused => {
                slot.signal(Signal::STOP);
                hurt = Some(Hurt::Paused);
            }
            (FaultKind::ConnectionCut, Some(link), Some(_)) => {
                link.cut();
            }
            (FaultKind::ConnectionCutAnswer, _, Some(connection)) => {
                connection.cut_after(planned.pick % 400);
                hurt = Some(Hurt::Doomed(connection));
            }
            (FaultKind::ConnectionDelay, Some(link), Some(_)) => {
                link.delay(Duration::from_millis(planned.pick % 300 + 10));
                hurt = Some(Hurt::Delayed(link.delayed()));
            }
            (FaultKind::ConnectionHalfOpen, _, Some(connection)) => {
                connection.silence();
                hurt = Some(Hurt::Silenced(connection));
            }
            (kind, ..) if kind.is_of_network() && !is_cut_off(&self.endings, &child) => {
                let directions = directions(kind);
                self.lose(place, directions, true)?;
                hurt = Some(Hurt::Lost(directions));
            }
            _ => return Ok(false),
        }
        let number = self.recorder.number();
        self.note(number, planned.kind, &process, Phase::Begin);
        self.faults += 1;
        if let Some(hurt) = hurt {
            let begun = Instant::now();
            let at = begun + planned.lasts();
            self.endings.push(Ending { begun, at, child, process, number, kind: planned.kind, hurt });
        }
        Ok(true)
    }

    /// Drops packets between the host of a child and the servers, or lets them pass again.
    fn lose(&self, place: usize, directions: &[Direction], lost: bool) -> Result<()> {
        let Some(network) = self.scene.network() else { return Ok(()) };
        directions.iter().try_for_each(|direction| network.drop_packets(place, *direction, lost))
    }

    /// Ends a fault of a child.
    fn end(&mut self, ending: &Ending) -> Result<()> {
        let hit = match &ending.hurt {
            Hurt::Paused => {
                let slot = self.children.slots.iter_mut().find(|slot| slot.name == ending.child);
                // Its successor was not hit.
                let slot = slot.filter(|slot| slot.id().is_some() && slot.process() == ending.process);
                let lives = slot.map(|slot| slot.signal(Signal::CONT)).is_some();
                lives && ending.begun.elapsed() > LEASE
            }
            Hurt::Delayed(before) => {
                let link = self.scene.link(&ending.child);
                link.inspect(|link| link.delay(Duration::ZERO)).is_some_and(|link| link.delayed() > *before)
            }
            Hurt::Doomed(connection) => connection.is_struck(),
            Hurt::Silenced(connection) => {
                // Routers forget connections in the end, and tell both sides.
                connection.cut();
                connection.is_struck()
            }
            Hurt::Lost(directions) => {
                let slot = self.children.slots.iter().find(|slot| slot.name == ending.child);
                if let Some(slot) = slot {
                    self.lose(slot.place, directions, false)?;
                }
                true
            }
        };
        let phase = if hit { Phase::End } else { Phase::Void };
        self.note(ending.number, ending.kind, &ending.process, phase);
        Ok(())
    }

    /// Stops these kinds, and kills those that take too long.
    async fn stop(&mut self, kinds: impl Fn(Kind) -> bool + Copy) -> Result<()> {
        self.children.request_stop(kinds);
        let deadline = Instant::now() + STOP;
        while !self.children.have_ended(kinds) {
            if Instant::now() > deadline {
                let late = self.children.kill(kinds);
                self.wrong
                    .extend(late.into_iter().map(|process| format!("{process} did not stop in {STOP:?}")));
            }
            self.tend()?;
            tokio::time::sleep(TURN).await;
            if self.interrupted.is_cancelled() {
                bail!("interrupted");
            }
        }
        Ok(())
    }
}
