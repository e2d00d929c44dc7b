// The link by which a person sets a password has its token after #, which browsers do not send by themselves.
export default function password(form) {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  form.elements.link.value = token;
  form.requestSubmit();
}
