package service

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/toolcrib/toolcrib"
)

func TestTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all trials
		first, endFirst, err := all.begin(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		other, endOther, err := all.begin(t.Context(), "bob")
		if err != nil || first.Err() != nil {
			t.Fatal("the trial of another administrator ends the first", err)
		}
		defer endOther()
		begun := make(chan func())
		go func() {
			_, end, err := all.begin(t.Context(), "ann")
			if err != nil {
				t.Error(err)
			}
			begun <- end
		}()
		synctest.Wait()
		if toolcrib.CodeOf(context.Cause(first)) != toolcrib.CodeConflict || other.Err() != nil {
			t.Error("the first trial has not ended", context.Cause(first), other.Err())
		}
		select {
		case <-begun:
			t.Error("a second trial begins before the first is over")
		default:
		}
		endFirst()
		endSecond := <-begun
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := all.begin(gone, "ann"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		endSecond()
		if <-other.Done(); !errors.Is(context.Cause(other), context.DeadlineExceeded) {
			t.Error(context.Cause(other))
		}
	})
}
