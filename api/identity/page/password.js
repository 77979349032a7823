// The page that mailed links lead to: sets a password by the link's token. The token leaves the address at once, so that no
// history keeps it.

const token = new URLSearchParams(location.hash.slice(1)).get('token')
history.replaceState(null, '', location.pathname)

const ways = {
  'accept-invitation': {
    title: 'Accept the invitation',
    about: 'Choose a password for your user in Keelson.',
    path: 'api/v1/auth/accept-invitation',
  },
  'password-reset': {
    title: 'Choose a new password',
    about: 'It ends all sessions of your user. Your authenticator stays.',
    path: 'api/v1/auth/password-reset/confirm',
  },
}
const way = ways[location.pathname.split('/').at(-1)]

const the = (id) => document.getElementById(id)
const show = (id) => the(id).removeAttribute('hidden')
const hide = (id) => the(id).setAttribute('hidden', '')

/** Why the API refuses, in its words. */
function whyOf({ title, detail, errors = [] }) {
  const mistakes = errors.map(({ pointer, message }) => `${pointer.slice(1)}: ${message}`)
  return [detail ?? title, ...mistakes].join('. ')
}

async function set(event) {
  event.preventDefault()
  const [password, again] = [the('password').value, the('again').value]
  if (password !== again) {
    the('why').textContent = 'The two passwords differ'
    return
  }
  the('set').disabled = true
  try {
    const answer = await fetch(way.path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token, password }),
    })
    if (answer.ok) {
      hide('choose')
      show('done')
    } else the('why').textContent = whyOf(await answer.json())
  } catch {
    the('why').textContent = 'Keelson does not answer: try again'
  }
  the('set').disabled = false
}

if (token && way) {
  the('title').textContent = way.title
  the('about').textContent = way.about
  the('choose').addEventListener('submit', (event) => void set(event))
  show('choose')
} else show('empty')
