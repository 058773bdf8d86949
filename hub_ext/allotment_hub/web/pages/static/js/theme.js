// Loaded before anything is painted, so that a dark page never flashes white. The choice is kept
// under the hub's own key: the hub's pages and these always agree.
(() => {
  const key = 'jupyterhub-bs-theme';
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const stored = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage may be forbidden; the system's setting then decides
    }
  };
  const apply = () => {
    const choice = stored();
    const theme =
      choice === 'light' || choice === 'dark' ? choice : dark.matches ? 'dark' : 'light';
    document.documentElement.setAttribute('data-bs-theme', theme);
    return theme;
  };
  apply();
  dark.addEventListener('change', apply);
  window.addEventListener('DOMContentLoaded', () => {
    const toggle = document.getElementById('dark-theme-toggle');
    toggle?.addEventListener('click', () => {
      try {
        localStorage.setItem(key, apply() === 'dark' ? 'light' : 'dark');
      } catch {
        return;
      }
      apply();
    });
  });
})();
