// A button that copies an address, or a text.
export default function copy(button) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.text ?? new URL(button.dataset.copy, location.href).href);
    button.append(` · ${button.dataset.copied}`);
    button.disabled = true;
  });
}
