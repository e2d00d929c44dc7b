// Package packaging_test has the files in packaging read by the libraries of Kubernetes and Compose, which refuse what
// these do not know.
package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decode decodes an object strictly into its type.
func decode[T any](t *testing.T, text string) (of T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &of); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	return of
}

// The objects have only fields that Kubernetes knows, and name only what is there.
func TestKubernetes(t *testing.T) {
	all := read(t, "kubernetes.yaml")
	var (
		deployment appsv1.Deployment
		job        batchv1.Job
		budget     policyv1.PodDisruptionBudget
		service    corev1.Service
		kinds      []string
		known      = map[string]bool{"secret toolcrib": true}
	)
	for _, text := range strings.Split(all, "\n---\n") {
		kind := decode[metav1.PartialObjectMetadata](t, regexp.MustCompile(`(?ms)^(data|spec):.*`).ReplaceAllString(text, ""))
		kinds = append(kinds, kind.APIVersion+" "+kind.Kind)
		switch kind.Kind {
		case "ConfigMap":
			known["configuration "+decode[corev1.ConfigMap](t, text).Name] = true
		case "PersistentVolumeClaim":
			known["claim "+decode[corev1.PersistentVolumeClaim](t, text).Name] = true
		case "Job":
			job = decode[batchv1.Job](t, text)
		case "Deployment":
			deployment = decode[appsv1.Deployment](t, text)
		case "PodDisruptionBudget":
			budget = decode[policyv1.PodDisruptionBudget](t, text)
		case "Service":
			service = decode[corev1.Service](t, text)
		default:
			t.Errorf("an object of kind %q", kind.Kind)
		}
	}
	if want := []string{
		"v1 ConfigMap", "v1 PersistentVolumeClaim", "batch/v1 Job", "apps/v1 Deployment", "policy/v1 PodDisruptionBudget", "v1 Service",
	}; !slices.Equal(kinds, want) {
		t.Errorf("%q", kinds)
	}
	for _, found := range regexp.MustCompile(`--from-(?:file|literal)=([a-z-]+)=`).FindAllStringSubmatch(all, -1) {
		known["key "+found[1]] = true
	}
	labels := deployment.Spec.Template.Labels
	for _, selector := range []map[string]string{
		deployment.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels, service.Spec.Selector,
		deployment.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) != 1 || selector["app"] != labels["app"] {
			t.Errorf("%v selects other pods than %v", selector, labels)
		}
	}
	for _, pod := range []corev1.PodSpec{job.Spec.Template.Spec, deployment.Spec.Template.Spec} {
		checkPod(t, pod, known)
	}
	pod := deployment.Spec.Template.Spec
	c := pod.Containers[0]
	if c.Ports[0].Name != c.ReadinessProbe.HTTPGet.Port.StrVal || c.Ports[0].Name != c.LivenessProbe.HTTPGet.Port.StrVal ||
		c.Ports[0].Name != service.Spec.Ports[0].TargetPort.StrVal || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("%+v %+v", c.Ports, service.Spec.Ports)
	}
	// It is left out, and then has 10 seconds for requests and as many again for its runs.
	if left := *pod.TerminationGracePeriodSeconds - c.Lifecycle.PreStop.Sleep.Seconds; left < 20 {
		t.Errorf("it is killed %d seconds after SIGTERM", left)
	}
	if away := budget.Spec.MaxUnavailable.IntVal; away < 1 || away >= *deployment.Spec.Replicas {
		t.Errorf("%d of %d servers may be away", away, *deployment.Spec.Replicas)
	}
}

// checkPod checks that a pod names only volumes, objects and keys that are known.
func checkPod(t *testing.T, pod corev1.PodSpec, known map[string]bool) {
	t.Helper()
	need := func(what string) {
		if !known[what] {
			t.Errorf("there is no %s", what)
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		switch {
		case v.ConfigMap != nil:
			need("configuration " + v.ConfigMap.Name)
		case v.PersistentVolumeClaim != nil:
			need("claim " + v.PersistentVolumeClaim.ClaimName)
		case v.Secret != nil:
			need("secret " + v.Secret.SecretName)
			need("key " + v.Secret.Items[0].Key)
		default:
			t.Errorf("%+v", v)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	for _, e := range pod.Containers[0].Env {
		need("secret " + e.ValueFrom.SecretKeyRef.Name)
		need("key " + e.ValueFrom.SecretKeyRef.Key)
	}
}

// Compose takes the file, with services, volumes and configs that are there.
func TestCompose(t *testing.T) {
	load := func(text string) (*types.Project, error) {
		return loader.LoadWithContext(t.Context(), types.ConfigDetails{
			WorkingDir: filepath.Join("..", "..", "packaging"), Environment: types.Mapping{},
			ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(text)}},
		})
	}
	text := read(t, "compose.yaml")
	p, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	if names := p.ServiceNames(); len(names) != 6 || *p.Services["toolcrib"].Deploy.Replicas != 3 {
		t.Errorf("%q", names)
	}
	if build := p.Services["toolcrib"].Build; build == nil {
		t.Error("the image is not built")
	} else if _, err := os.Stat(filepath.Join(build.Context, build.Dockerfile)); err != nil {
		t.Error(err)
	}
	for from, to := range map[string]string{
		"replicas": "replica", "target: /nats.conf": "at: /nats.conf", "service_healthy": "healthy", "migrate: {condition": "migration: {condition",
	} {
		if _, err := load(strings.Replace(text, from, to, 1)); err == nil {
			t.Errorf("%s is taken", to)
		}
	}
}
