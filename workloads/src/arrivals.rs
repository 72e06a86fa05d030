//! Due times of operations in an open loop.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Exp};

/// Arrivals of many independent clients: the gaps are exponentially distributed.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    random: SmallRng,
    /// Seconds between arrivals.
    gaps: Exp<f64>,
    rate: f64,
    /// The next arrival.
    pub(crate) next: Instant,
}

impl Arrivals {
    /// Arrivals at `rate` per second on average, the first at `began`.
    ///
    /// # Panics
    /// If the rate is not above 0.
    pub(crate) fn new(random: SmallRng, rate: f64, began: Instant) -> Self {
        let gaps = Exp::new(rate).expect("a rate is above 0");
        Self { random, gaps, rate, next: began }
    }

    /// Advances to the arrival after the next.
    pub(crate) fn advance(&mut self) {
        self.next += Duration::from_secs_f64(self.gaps.sample(&mut self.random));
    }

    /// Expected number of arrivals from the later of `from` and the next one to `until`.
    pub(crate) fn between(&self, from: Instant, until: Instant) -> u64 {
        let left = until.saturating_duration_since(from.max(self.next));
        skein_checker::chart::whole(left.as_secs_f64() * self.rate)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn arrivals_come_at_the_rate_asked_for() {
        let began = Instant::now();
        let mut arrivals = Arrivals::new(SmallRng::seed_from_u64(7), 1e3, began);
        (0..20_000).for_each(|_| arrivals.advance());
        let seconds = (arrivals.next - began).as_secs_f64();
        assert!((19.5..20.5).contains(&seconds), "{seconds} s for 20,000 at 1,000 a second");
        let later = arrivals.next + Duration::from_secs(3);
        assert!((2_999..=3_000).contains(&arrivals.between(began, later)));
        assert_eq!(arrivals.between(later, began), 0);
    }
}
