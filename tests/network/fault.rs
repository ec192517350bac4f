//! What may befall an instance.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

use crate::hosts::Host;
use crate::instance::Instance;

/// What befalls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing.
    None,
    /// It is killed.
    Kill,
    /// It stands still, with its connections open.
    Hold,
    /// Its link is down.
    Cut,
    /// What it sends to one other instance is lost.
    LoseTo(usize),
    /// Its link takes this many kilobits a second.
    Slow(u32),
    /// Its disk is full; whoever frees it starts it again.
    FullDisk,
}

impl Fault {
    /// One that these hosts allow.
    pub fn random(rng: &mut StdRng, are_isolated: bool, victim: usize) -> Self {
        match rng.random_range(0..if are_isolated { 12 } else { 5 }) {
            0 => Self::None,
            1..=3 => Self::Kill,
            4 => Self::Hold,
            5 | 6 => Self::Cut,
            7 | 8 => Self::LoseTo((victim + rng.random_range(1..3)) % 3),
            9 => Self::Slow([64, 256, 1024][rng.random_range(0..3)]),
            _ => Self::FullDisk,
        }
    }

    /// Has it happen.
    pub fn begin(self, victim: &mut Instance, hosts: &[Host]) {
        match self {
            Self::None => {}
            Self::Kill => victim.kill(),
            Self::Hold => victim.set_held(true),
            Self::Cut => victim.host.set_link(false),
            Self::LoseTo(other) => victim.host.set_loss(&hosts[other], true),
            Self::Slow(kilobits) => victim.host.set_rate(Some(kilobits)),
            Self::FullDisk => victim.host.set_full(true),
        }
    }

    /// Ends it.
    pub fn end(self, victim: &mut Instance, hosts: &[Host]) {
        match self {
            Self::None => {}
            Self::Kill => victim.restart(),
            Self::Hold => victim.set_held(false),
            Self::Cut => victim.host.set_link(true),
            Self::LoseTo(other) => victim.host.set_loss(&hosts[other], false),
            Self::Slow(_) => victim.host.set_rate(None),
            Self::FullDisk => {
                victim.host.set_full(false);
                victim.kill();
                victim.restart();
            }
        }
    }

    /// Its name without particulars.
    pub fn kind(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kill => "kill",
            Self::Hold => "hold",
            Self::Cut => "cut",
            Self::LoseTo(_) => "lose",
            Self::Slow(_) => "slow",
            Self::FullDisk => "full disk",
        }
    }
}

/// How often each fault happened.
pub type Tally = BTreeMap<&'static str, u32>;
