//! [`Switch`]: a layer's caching, on and off while it runs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Turns the layers that it was given to on and off, while they run and from anywhere.
///
/// Off, their requests bypass: they reach the inner service untouched, and nothing is stored or
/// shared. What is stored stays, and answers again once the switch is on. Clones are the same switch.
///
/// ```
/// use tower_stampede::{BufferLayer, Cache, Switch};
///
/// let switch = Switch::default();
/// let layer = BufferLayer::new(Cache::in_memory()).switch(&switch);
///
/// // In an incident, say from an admin route:
/// switch.off();
/// assert!(!switch.is_on());
/// switch.on();
/// ```
#[derive(Clone, Debug)]
pub struct Switch(Arc<AtomicBool>);

/// On.
impl Default for Switch {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Switch {
    /// Lets the layers cache from now on.
    pub fn on(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Has every request bypass from now on; those under way end as they began.
    pub fn off(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the layers cache.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
