// The end of a login of a connector in the browser. The code leaves the address at once, so that no history keeps it.

const given = new URLSearchParams(location.search)
history.replaceState(null, '', location.pathname)

const the = (id) => document.getElementById(id)
const show = (id) => the(id).removeAttribute('hidden')

const [code, state, error] = ['code', 'state', 'error'].map((name) => given.get(name))

if (error) {
  const words = given.get('error_description') ?? error
  the('why').textContent = `The provider says: ${words.slice(0, 300)}`
  show('refused')
} else if (code && state) {
  the('code').value = `${code}#${state}`
  show('done')
} else show('empty')

async function copy() {
  the('code').select()
  try {
    await navigator.clipboard.writeText(the('code').value)
    the('copied').textContent = 'Copied'
  } catch {
    the('copied').textContent = 'The browser does not allow it: copy the selected text'
  }
}
the('copy').addEventListener('click', () => void copy())
