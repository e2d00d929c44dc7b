// Package stat has the statistics and the clock that the programs of this module share.
package stat

import (
	"slices"
	"time"
)

// Quantile is the value that so many percent of them do not exceed; of none it is 0.
func Quantile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// Median is the middle one.
func Median(all []time.Duration) time.Duration { return Quantile(all, 50) }

// Ratio is the median of the ratios of figures that were measured one right after the other: a busy
// machine hits neighbours alike.
func Ratio(a, b []time.Duration) float64 {
	_, mid, _ := Ratios(a, b)
	return mid
}

// Ratios are the smallest, the median and the largest of these ratios.
func Ratios(a, b []time.Duration) (low, mid, high float64) {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(ratios)
	return ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1]
}
