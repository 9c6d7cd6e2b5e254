//! A turn at work: from the connections that a database gets until it has given them back.
//!
//! While nobody waits it ends when there is nothing left to do. While others wait it ends as soon as the database has been quiet for a
//! moment, or has had its share and its turn began before those of the others: as many make room as wait, and nobody else is disturbed.

use super::*;

/// How often a database that is worked on is asked what else there is to do.
const CHECK: Duration = Duration::from_secs(1);

/// How often it is seen whether it should make room while others wait. The database itself is not asked for that.
const CHECK_WHILE_OTHERS_WAIT: Duration = Duration::from_millis(50);

/// The shortest pause between two times that it is seen to.
const SHORTEST: Duration = Duration::from_millis(10);

/// How long somebody must have waited before it is decided who makes room for it.
const SETTLED: Duration = Duration::from_millis(100);

/// How long nothing must have happened before a database makes room for others. Less than that, and one that is sent a message now and then
/// would lose its connections just before each.
const QUIET: Duration = Duration::from_millis(500);

/// How long a database may take to say anything at all before it makes room for others who wait.
const SLOW: Duration = Duration::from_secs(1);

/// How long a database that gives its place up keeps all its connections. What takes longer goes on, and has one whenever it needs one.
const PARTING: Duration = Duration::from_secs(1);

/// Connections of a database at work of which handlers can't have all: one is always left to answer a look.
const ENOUGH: usize = 3;

/// How often in a row a database with fewer may not answer in time.
const UNANSWERED: u32 = 2;

/// Why work on a database ends.
enum End {
    /// The process, or the database's place in the fleet, comes to its end; or it is another node's now.
    Stop,
    /// It has nothing to do.
    Idle,
    /// It has had its share, and others wait. Or it has shown that it is well, and can work as everybody does.
    Share,
    /// It no longer answers.
    Sick(Error),
    /// It answers, and claims fail.
    SickAtWork(Error),
}

impl End {
    fn why(&self) -> &'static str {
        match self {
            Self::Stop => "ends: it is no longer kept here",
            Self::Idle => "ends: it has nothing to do",
            Self::Share => "ends: others wait",
            Self::Sick(_) | Self::SickAtWork(_) => "ends: it has failed",
        }
    }
}

impl Keeper {
    /// Works on the database until it has nothing to do, or has had its share.
    pub(super) async fn work(&mut self) {
        self.store.set_state(StoreState::Waiting);
        telemetry::store_turn(self.store.id(), "waits");
        if !self.hold_all().await {
            return;
        }
        telemetry::store_turn(self.store.id(), "begins");
        self.store.set_state(StoreState::Warm);
        self.plan.works();
        self.allow().await;
        let Some(fit) = self.unless_others_wait(self.is_fit()).await else {
            telemetry::store_turn(self.store.id(), "is slow");
            self.sever().await;
            // With one connection, and all the time it may take. If it answers, it has as much time when its turn has come again.
            self.patient = true;
            return self.look().await;
        };
        self.patient = false;
        let ended = match fit {
            Ok(()) => self.work_through().await,
            Err(error) => Err(error),
        };
        self.let_go().await;
        telemetry::store_turn(self.store.id(), "over");
        if let Err(error) = ended {
            self.failed(&error);
        }
    }

    /// The turn of a database that answers. An error is what a look would show, too.
    async fn work_through(&mut self) -> Result<()> {
        let pulse = Arc::clone(self.store.slots.pulse());
        let taken = pulse.taken();
        let running = match self.begin().await {
            Ok(running) => running,
            Err(error) => {
                self.failed_at_work(&error);
                return Ok(());
            }
        };
        // Where a strategy hands out batches, it takes one of those.
        if !self.is_on_trial() {
            self.succeeded();
        }
        self.plan.work_at = Instant::now() + self.node.options.upkeep;
        telemetry::store_turn(self.store.id(), "works");
        let end = self.attend(&pulse, taken).await;
        telemetry::store_turn(self.store.id(), end.why());
        self.held.iter().for_each(Share::leaves);
        self.finish(running, end).await
    }

    /// Whether it has yet to show, by claims, that it is well.
    fn is_on_trial(&self) -> bool {
        let claims = |queue| self.store.mainstay.dispatcher(queue).is_some();
        (claims(Queue::Outbox) || claims(Queue::Inbox)) && self.store.view().breaker.is_unproven()
    }

    /// What the database answers; none if that takes long and somebody waits for what it works with.
    async fn unless_others_wait<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut line = self.node.budget.line();
        let others = async {
            tokio::time::sleep(SLOW).await;
            someone_waits(&mut line, self.store.server.as_deref()).await;
        };
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = others, if !self.patient => None,
        }
    }

    async fn begin(&self) -> Result<RunningMainstay> {
        let limit = self.node.options.start_timeout;
        let starting = async {
            match self.node.dispatches {
                true => self.store.mainstay.start().await,
                false => self.store.mainstay.start_chores().await,
            }
        };
        match tokio::time::timeout(limit, starting).await {
            Ok(started) => started,
            Err(_) => Err(no_answer("fleet.start", limit)),
        }
    }

    /// Watches over the work, until there is a reason to end it. `taken` is how often something had come into hand before it began.
    async fn attend(&mut self, pulse: &Pulse, mut taken: u64) -> End {
        let options = self.node.options;
        let (mut owned, mut line) = (self.node.owned.clone(), self.node.budget.line());
        let began = Instant::now();
        let (mut look_at, mut busy_at, mut unanswered) = (began, None, 0);
        // With few connections a look can also go unanswered because all are in handlers' hands.
        let patience = if options.connections_per_store < ENOUGH { UNANSWERED } else { 0 };
        let on_trial = self.node.dispatches && self.is_on_trial();
        let before = taken;
        let mut waited_for = None;
        loop {
            if self.stop.is_cancelled() || !owned.borrow_and_update().owns(self.store.id()) {
                return End::Stop;
            }
            if let Some(end) = self.verdict(pulse, on_trial.then_some(before), began) {
                return end;
            }
            let others_wait = line.borrow_and_update().wants(self.store.server.as_deref());
            waited_for = others_wait.then(|| waited_for.unwrap_or_else(Instant::now));
            let came = std::mem::replace(&mut taken, pulse.taken()) != taken;
            if self.store.signals.take().rung || came || pulse.in_hand() > 0 {
                busy_at = Some(Instant::now());
            }
            // One that had nothing to do from the start keeps nobody waiting.
            let is_quiet = |busy_at: Option<Instant>| match others_wait {
                true => busy_at.is_none_or(|at| at.elapsed() >= QUIET.min(options.idle)),
                false => busy_at.unwrap_or(began).elapsed() >= options.idle,
            };
            // Whether it still answers decides how it ends, so it is asked then, too. All who work find out within a moment that somebody waits,
            // and only then is it known who is to make room.
            let is_first =
                self.held.as_ref().is_some_and(|held| others_wait && held.is_to_leave(options.share));
            let is_to_leave = is_first && waited_for.is_some_and(|since| since.elapsed() >= SETTLED);
            if is_to_leave || look_at <= Instant::now() || (others_wait && is_quiet(busy_at)) {
                // Whatever was written until now, this look sees it. What is written later stays told.
                self.store.signals.take_written();
                let agenda = match self.agenda().await {
                    Ok(agenda) => agenda,
                    Err(error) if error.operation() == NO_ANSWER && unanswered < patience => {
                        unanswered += 1;
                        continue;
                    }
                    Err(error) => return End::Sick(error),
                };
                unanswered = 0;
                look_at = Instant::now() + CHECK;
                // Coordinators that run see for themselves; but of those that they have not found yet nobody would know, if the turn ended here.
                let seen = self.store.mainstay.fanout_changes();
                self.fanout_changes = Some(seen.unwrap_or(agenda.fanout_changes));
                let next = self.store.next(&agenda, self.node.dispatches);
                if pulse.in_hand() > 0 || next.is_some_and(|next| next < options.idle) {
                    busy_at = Some(Instant::now());
                }
                if is_quiet(busy_at) && !on_trial {
                    self.plan.wake();
                    self.plan(&agenda);
                    return End::Idle;
                }
            }
            if is_to_leave {
                return End::Share;
            }
            // What has happened is only known to have happened since the last time; so that is never long ago, compared with how long nothing must.
            let check = match others_wait {
                true => CHECK_WHILE_OTHERS_WAIT,
                false => (look_at - Instant::now()).min(options.idle / 4).max(SHORTEST),
            };
            tokio::select! {
                () = self.stop.cancelled() => {}
                _ = owned.changed() => {}
                () = someone_waits(&mut line, self.store.server.as_deref()), if !others_wait => {}
                Some(request) = self.requests.recv() => self.run_batch(request).await,
                () = tokio::time::sleep(check) => {}
            }
        }
    }

    /// What claims say of the database, where they say something that is reason enough to end the turn. On trial it is known how often
    /// something had come into hand before.
    fn verdict(&mut self, pulse: &Pulse, on_trial: Option<u64>, began: Instant) -> Option<End> {
        let limit = self.node.options.look_timeout;
        if let Some(error) = pulse.trouble() {
            return Some(End::SickAtWork(error));
        }
        if pulse.has_claimed(on_trial?) {
            self.succeeded();
            self.held.iter_mut().for_each(Share::is_of_one_that_is_well);
            return Some(End::Share);
        }
        (began.elapsed() >= limit).then(|| End::SickAtWork(no_answer("fleet.claim", limit)))
    }

    /// Ends the work. Connections that are not needed for that are given back before it is done.
    async fn finish(&mut self, running: RunningMainstay, end: End) -> Result<()> {
        match end {
            End::Stop => running.stop().await,
            End::Sick(error) => self.abandon(running.stop(), error).await,
            End::SickAtWork(error) => {
                self.failed_at_work(&error);
                // What it was is said. What else goes wrong at its end was to be expected.
                drop(self.abandon(running.stop(), error).await);
                Ok(())
            }
            End::Idle | End::Share => {
                if matches!(end, End::Share) {
                    // To the end of the line.
                    self.plan.work_at = Instant::now();
                }
                let (stop, mut owned) = (self.stop.clone(), self.node.owned.clone());
                let (id, sick) = (self.store.id().to_owned(), CancellationToken::new());
                let is_sick = sick.clone();
                let hurry = async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = is_sick.cancelled() => {}
                        _ = owned.wait_for(|owned| !owned.owns(&id)) => {}
                    }
                };
                let mut finishing = Box::pin(running.finish(hurry));
                let error = tokio::select! {
                    finished = &mut finishing => return finished,
                    error = self.part() => error,
                };
                sick.cancel();
                self.abandon(finishing, error).await
            }
        }
    }

    /// Gives the connections back while handlers take as long as they take. For what these still have to say, to renew and to settle, there
    /// is one whenever it is wanted, as for the application's calls. Returns what is wrong with the database, as soon as something is.
    async fn part(&mut self) -> Error {
        tokio::time::sleep(PARTING).await;
        // What is in hand is to be settled, also when all comes to its end.
        let never = CancellationToken::new();
        loop {
            self.let_go().await;
            let told = tokio::select! {
                () = self.store.signals.told() => true,
                () = tokio::time::sleep(CHECK), if self.held.is_some() => false,
            };
            if told {
                let told = self.store.signals.take();
                self.recheck |= told.recheck;
                if told.rung {
                    self.hear();
                }
                if told.wanted {
                    self.serve(Serving::Busy, &never).await;
                }
                continue;
            }
            // A handler's transaction may have it. Or nobody answers, which can only be told with one more.
            if self.held() + 1 >= ENOUGH.max(self.node.options.connections_per_store) {
                continue;
            }
            self.hold_one(&never).await;
            self.allow().await;
            if let Err(error) = self.agenda().await {
                return error;
            }
        }
    }

    /// Takes a database's connections away while its work comes to an end: it does not answer, and others can use them. Should it answer
    /// after all, one connection will do for what is still to be settled.
    async fn abandon(&mut self, ending: impl Future<Output = Result<()>>, error: Error) -> Result<()> {
        tokio::pin!(ending);
        self.sever().await;
        loop {
            tokio::select! {
                ended = &mut ending => return ended.and(Err(error)),
                () = self.store.signals.told() => {}
            }
            if self.store.signals.take().wanted {
                break;
            }
        }
        let ended = async {
            self.hold_one(&CancellationToken::new()).await;
            self.allow().await;
            let ended = tokio::time::timeout(self.node.options.look_timeout, &mut ending).await;
            self.sever().await;
            ended
        };
        match ended.await {
            Ok(ended) => ended.and(Err(error)),
            // What could not be settled lapses.
            Err(_) => ending.await.and(Err(error)),
        }
    }
}
