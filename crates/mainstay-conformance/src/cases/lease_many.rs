//! Many leases at once: the same rules as for one, in one visit to the database; and finding leases by how their names begin.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::lease::{LeaseClaim, LeaseFilter, LeaseGrant, Leases, LeasesRequest};
use mainstay_core::store::Names;

use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::world::{GRAIN, World};

use super::lease::{LONG, acquire, leases, others, still};

cases! { $ lease_many_cases:
    r20_many_leases_take_one_visit ["R20", "R24"],
    r20_many_leases_follow_the_rules_of_one ["R20"],
    r20_many_leases_are_given_to_one_of_many ["R20", "MST-009"],
    r20_many_leases_leave_out_what_is_guarded ["R20"],
    r20_the_functions_over_many_are_there_for_every_language ["R20"],
    r20_leases_are_found_by_how_their_names_begin ["R20", "MST-022"],
}

fn request(names: &[String], owner: &str) -> LeasesRequest {
    LeasesRequest {
        names: names.to_vec(),
        owner: owner.to_owned(),
        duration: LONG,
        context: Some("many".to_owned()),
        reentrant: false,
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("lease-{number}")).collect()
}

fn claims(names: &[String], owner: &str, grants: &[Option<LeaseGrant>]) -> Vec<LeaseClaim> {
    let claim = |(name, grant): (&String, &Option<LeaseGrant>)| {
        let epoch = (*grant)?.epoch;
        Some(LeaseClaim { name: name.clone(), owner: owner.to_owned(), epoch })
    };
    names.iter().zip(grants).filter_map(claim).collect()
}

async fn r20_many_leases_take_one_visit(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let metered = fx.metered().await;
    let store = metered.provider.leases();
    let names = numbered(64);
    // Connected before it counts.
    store.active().await.unwrap();

    let before = (metered.visits)();
    let grants = store.acquire_many(&request(&names, "me")).await.unwrap();
    assert_eq!((metered.visits)() - before, 1, "an acquisition of 64");
    assert_eq!(grants.len(), 64);
    let server = world.now().await;
    for grant in &grants {
        let grant = grant.expect("nobody else wants it");
        assert_eq!((grant.epoch, grant.fencing_token), (1, 1));
        let end = grant.now + LONG;
        assert!((end..end + GRAIN).contains(&grant.expires_at), "{end}: {}", grant.expires_at);
        assert!(grant.now <= server);
    }
    let record = store.get("lease-7").await.unwrap().unwrap();
    assert_eq!((record.owner.as_deref(), record.context.as_deref()), (Some("me"), Some("many")));
    assert!(record.held);

    let claims = claims(&names, "me", &grants);
    let before = (metered.visits)();
    let renewed = store.renew_many(&claims, LONG).await.unwrap();
    assert_eq!((metered.visits)() - before, 1, "a renewal of 64");
    for (grant, first) in renewed.iter().zip(&grants) {
        let (grant, first) = (grant.unwrap(), first.unwrap());
        assert_eq!((grant.epoch, grant.fencing_token), (1, 2));
        assert!(grant.now >= first.now);
        let end = grant.now + LONG;
        assert!((end..end + GRAIN).contains(&grant.expires_at), "{end}: {}", grant.expires_at);
    }

    let before = (metered.visits)();
    assert_eq!(store.release_many(&claims).await.unwrap(), vec![true; 64]);
    assert_eq!((metered.visits)() - before, 1, "a release of 64");
    assert_eq!(store.active().await.unwrap(), 0);
    assert_eq!(store.release_many(&claims).await.unwrap(), vec![false; 64], "released is released");
    assert_eq!(store.renew_many(&claims, LONG).await.unwrap(), vec![None; 64]);
    assert_eq!(store.acquire_many(&request(&[], "me")).await.unwrap(), []);
    assert_eq!(store.renew_many(&[], LONG).await.unwrap(), []);
    assert_eq!(store.release_many(&[]).await.unwrap(), [false; 0]);
    metered.provider.close().await;
}

async fn r20_many_leases_follow_the_rules_of_one(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let store = world.provider.leases();
    let names = numbered(6);
    // 0 is held by another, 1 has lapsed, 2 was released, 3 is the same owner's, 4 and 5 were never held.
    let lapsed = acquire(&leases(&world), "lease-1", still()).await;
    world.advance(LONG).await;
    let held = acquire(&leases(&world), "lease-0", still()).await;
    acquire(&leases(&world), "lease-2", still()).await.close().await.unwrap();
    let own = acquire(&leases(&world), "lease-3", still().owner("me")).await;

    let grants = store.acquire_many(&request(&names, "me")).await.unwrap();
    let numbers: Vec<_> =
        grants.iter().map(|grant| grant.map(|grant| (grant.epoch, grant.fencing_token))).collect();
    assert_eq!(numbers, [None, Some((2, 2)), Some((2, 2)), None, Some((1, 1)), Some((1, 1))]);
    assert!(held.renew().await.unwrap() && own.renew().await.unwrap(), "what was held stays so");
    assert!(!lapsed.renew().await.unwrap());

    // The same owner again, when told to: a new acquisition of each.
    let again = LeasesRequest { reentrant: true, ..request(&names, "me") };
    let mut renamed = again.names.clone();
    renamed.reverse();
    let second = store.acquire_many(&LeasesRequest { names: renamed, ..again }).await.unwrap();
    let epochs: Vec<_> = second.iter().rev().map(|grant| grant.map(|grant| grant.epoch)).collect();
    assert_eq!(epochs, [None, Some(3), Some(3), Some(2), Some(2), Some(2)], "in the order of the names");

    // What the first acquisition proves is worth nothing any more, and one false claim does not harm the others.
    assert_eq!(store.renew_many(&claims(&names, "me", &grants), LONG).await.unwrap(), [None; 4]);
    let mut proofs = claims(&names[4..], "me", &second[..2].iter().rev().copied().collect::<Vec<_>>());
    proofs.insert(1, LeaseClaim { name: "lease-1".to_owned(), owner: "thief".to_owned(), epoch: 3 });
    proofs.push(LeaseClaim { name: "never held".to_owned(), owner: "me".to_owned(), epoch: 1 });
    let renewed = store.renew_many(&proofs, LONG).await.unwrap();
    assert_eq!(renewed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, false]);

    // Lapsed is lost, for all of them.
    world.advance(LONG + Duration::from_secs(1)).await;
    assert_eq!(store.renew_many(&proofs, LONG).await.unwrap(), [None; 4]);
    assert_eq!(store.release_many(&proofs).await.unwrap(), [false; 4]);
    // Named twice is one lease.
    let twice = [names[5].clone(), names[5].clone(), "twice".to_owned(), "twice".to_owned()];
    let grants = store.acquire_many(&request(&twice, "me")).await.unwrap();
    assert_eq!(store.get("twice").await.unwrap().unwrap().epoch, 1);
    assert_eq!(store.get(&names[5]).await.unwrap().unwrap().epoch, 3);
    assert!(grants[0].is_some() && grants[2].is_some());
}

async fn r20_many_leases_are_given_to_one_of_many(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = fx.second().await;
    let stores = [world.provider.leases(), second.leases()];
    let names = numbered(40);
    for round in 1..=5 {
        let contender = async |number: usize| {
            let (store, owner) = (&stores[number % 2], format!("contender-{number}"));
            // Each in an order of its own: whoever locked in that order would wait crosswise.
            let mut mine = names.clone();
            mine.rotate_left(number * 7 % names.len());
            if number.is_multiple_of(3) {
                mine.reverse();
            }
            let grants = store.acquire_many(&request(&mine, &owner)).await.unwrap();
            let claims = claims(&mine, &owner, &grants);
            assert!(store.renew_many(&claims, LONG).await.unwrap().iter().all(Option::is_some), "{owner}");
            claims
        };
        let won = join_all((0..8).map(contender)).await.concat();
        let distinct: BTreeSet<&String> = won.iter().map(|claim| &claim.name).collect();
        assert_eq!((won.len(), distinct.len()), (names.len(), names.len()), "each has one winner");
        assert!(won.iter().all(|claim| claim.epoch == round), "each was acquired once per round");
        assert_eq!(stores[1].release_many(&won).await.unwrap(), vec![true; names.len()]);
    }
    second.close().await;
}

async fn r20_many_leases_leave_out_what_is_guarded(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (mine, others) = (leases(&world), others(fx).await);
    let lease = acquire(&mine, "lease-1", still()).await;
    let mut transaction = world.outbox.store().begin().await.unwrap();
    lease.guard(&mut transaction).await.unwrap();
    let wanted = request(&numbered(3), "me");
    // One writer at a time: there all of it waits for the transaction.
    if world.provider.capabilities().functions {
        let claim =
            LeaseClaim { name: "lease-1".to_owned(), owner: lease.owner().to_owned(), epoch: lease.epoch() };
        assert!(
            mine.store().renew_many(std::slice::from_ref(&claim), LONG).await.unwrap()[0].is_some(),
            "meanwhile"
        );
        assert_eq!(mine.store().release_many(&[claim]).await.unwrap(), [true], "even that");
        let grants = others.store().acquire_many(&wanted).await.unwrap();
        let given: Vec<bool> = grants.iter().map(Option::is_some).collect();
        assert_eq!(given, [true, false, true], "but nobody else gets it");
    }
    transaction.commit().await.unwrap();
    lease.close().await.unwrap();
    let wanted = LeasesRequest { reentrant: true, ..wanted };
    let grants = others.store().acquire_many(&wanted).await.unwrap();
    assert_eq!(grants[1].unwrap().epoch, 2);
    assert!(grants[0].is_some() && grants[2].is_some());
}

async fn r20_the_functions_over_many_are_there_for_every_language(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    let (all, me) = (Some("{a,b,c}"), Some("me"));
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    assert_eq!(call("lease_acquire", &[Some("b"), Some("you")]).await.unwrap(), ["t"]);
    assert_eq!(
        sorted(call("lease_acquire_many", &[all, me, Some("60"), Some("")]).await.unwrap()),
        ["a", "c"]
    );
    let proofs = [all, Some("{me,me,me}"), Some("{1,1,2}")];
    assert_eq!(call("lease_renew_many", &proofs).await.unwrap(), ["a"]);
    assert_eq!(call("lease_list_by_prefix", &[Some("a")]).await.unwrap(), ["a"]);
    assert_eq!(call("lease_list_by_prefix", &[Some("")]).await.unwrap(), ["a", "b", "c"]);
    if fx.can_say("lease_list_by_prefix", &[None]) {
        assert_eq!(call("lease_list_by_prefix", &[None]).await.unwrap(), [""; 0]);
    }
    assert_eq!(call("lease_release_many", &proofs).await.unwrap(), ["a"]);
    assert_eq!(call("lease_acquire_many", &[Some("{}"), me]).await.unwrap(), [""; 0]);
    for (function, arguments, says) in [
        ("lease_acquire_many", vec![None, me], "names"),
        ("lease_acquire_many", vec![Some("{a,null}"), me], "names"),
        ("lease_acquire_many", vec![Some("{\"\"}"), me], "names"),
        ("lease_acquire_many", vec![all, None], "owner"),
        ("lease_acquire_many", vec![all, me, Some("0")], "duration_seconds"),
        ("lease_acquire_many", vec![all, me, Some("NaN")], "duration_seconds"),
        ("lease_acquire_many", vec![all, me, Some("1"), None, None], "reentrant"),
        ("lease_renew_many", vec![None, all, Some("{1,1,1}")], "names"),
        ("lease_renew_many", vec![all, None, Some("{1,1,1}")], "owners"),
        ("lease_renew_many", vec![all, all, None], "epochs"),
        ("lease_renew_many", vec![all, all, Some("{1,1}")], "equally many"),
        ("lease_renew_many", vec![all, all, Some("{1,1,1}"), Some("-1")], "duration_seconds"),
        ("lease_release_many", vec![all, Some("{me}"), Some("{1,1,1}")], "equally many"),
        ("lease_release_many", vec![all, None, Some("{1,1,1}")], "owners"),
    ] {
        if !fx.can_say(function, &arguments) {
            continue;
        }
        let told = call(function, &arguments).await.unwrap_err();
        assert!(told.starts_with(function) && told.contains(says), "{function}: {told}");
    }
    Verdict::Passed
}

async fn list(leases: &Leases, filter: LeaseFilter) -> Vec<String> {
    leases.list(&filter).await.unwrap().into_iter().map(|lease| lease.name).collect()
}

async fn r20_leases_are_found_by_how_their_names_begin(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (mine, theirs) = (leases(&world), others(fx).await);
    let names = [
        "a",
        "a%",
        "a%b",
        "a_",
        "ab",
        "abc",
        "abc:1",
        "abc:10",
        "abc:2",
        "b",
        "A",
        "a'; drop table lease; --",
        "ü",
        "üb",
        "~",
        "~a",
        "\u{d7ff}",
        "\u{d7ff}a",
        "\u{10ffff}",
        "\u{10ffff}a",
        "\u{e000}",
    ];
    let all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let grants = theirs.store().acquire_many(&request(&all, "them")).await.unwrap();
    assert!(grants.iter().all(Option::is_some));
    for prefix in names {
        let mut wanted: Vec<&str> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
        wanted.sort_unstable();
        assert_eq!(list(&mine, LeaseFilter::all().prefix(prefix)).await, wanted, "{prefix:?}");
    }
    assert_eq!(list(&mine, LeaseFilter::all().prefix("abcd")).await, [""; 0]);
    assert_eq!(list(&mine, LeaseFilter::all().prefix("")).await.len(), names.len(), "no prefix is all");

    let page = LeaseFilter::all().prefix("abc:").limit(2);
    assert_eq!(list(&mine, page.clone()).await, ["abc:1", "abc:10"]);
    assert_eq!(list(&mine, page.clone().after(Some("abc:10".to_owned()))).await, ["abc:2"]);
    assert_eq!(list(&mine, page.clone().after(Some("a".to_owned()))).await, ["abc:1", "abc:10"]);
    theirs.force_release("abc:1").await.unwrap();
    assert_eq!(list(&mine, page.clone().held_only(true)).await, ["abc:10", "abc:2"]);
    world.advance(LONG).await;
    assert_eq!(list(&mine, page.held_only(true)).await, [""; 0]);
    let error = mine.list(&LeaseFilter::all().prefix("a\0")).await.unwrap_err();
    assert_eq!(error.field(), Some("prefix"));
    let error = mine.list(&LeaseFilter::all().prefix("ü".repeat(256))).await.unwrap_err();
    assert_eq!(error.field(), Some("prefix"));
}
