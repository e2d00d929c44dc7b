// A button that shows the text of a field for a password, until the form is sent.
export default function reveal(button) {
  const field = document.getElementById(button.getAttribute("aria-controls"));
  const show = (yes) => {
    field.type = yes ? "text" : "password";
    button.setAttribute("aria-pressed", yes);
  };
  button.hidden = false;
  button.addEventListener("click", () => show(field.type === "password"));
  field.form.addEventListener("submit", () => show(false)); // so that browsers do not remember it as a text
}
